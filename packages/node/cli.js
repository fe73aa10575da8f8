#!/usr/bin/env node
'use strict';

// `helenus`: the program that the package carries.

const { spawnSync } = require('node:child_process');
const os = require('node:os');

const { binaryPath } = require('./index.js');

const run = spawnSync(binaryPath(), process.argv.slice(2), { stdio: 'inherit' });
if (run.error) throw run.error;
process.exitCode = run.signal ? 128 + os.constants.signals[run.signal] : run.status;
