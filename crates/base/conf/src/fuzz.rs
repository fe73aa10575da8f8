//! Fuzz entry: any bytes as a configuration file.

use crate::load::{CommandLine, Sources, load, summarize};

/// Reads `data` as a file, as an environment value and as a command line; must never panic.
pub fn fuzz_yaml(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let file = Some(("fuzz.yaml".to_owned(), text.to_owned()));
    let environment = vec![("HELENUS_SEED_PROVIDER".to_owned(), text.to_owned())];
    let loaded = load(&Sources { file, environment, ..Sources::default() });
    match loaded {
        Ok(loaded) => drop(summarize(&loaded.warnings)),
        Err(errors) => drop(errors.to_string()),
    }
    if let Ok(command_line) = CommandLine::parse(text.split_whitespace()) {
        drop(load(&Sources { command_line, ..Sources::default() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORPUS: &[&str] = &[
        "cluster_name: 'Test Cluster'\nnum_tokens: 16\nread_request_timeout_in_ms: 5000\n",
        "data_file_directories:\n  - /a\nseed_provider:\n  - class_name: S\n    parameters:\n      - seeds: \"a:1,b\"\n",
        "server_encryption_options:\n  internode_encryption: none\n  keystore: conf/.keystore\n",
        "a: &x [1, {b: |\n  text\n  , c: >-\n   more}]\n? complex\n: value\n--- !!set\n*x\n",
        "commitlog_sync: group\ncommitlog_sync_group_window_in_ms: 2.5\nmemory: 18446744073709551615T\n",
        "initial_token: '-9223372036854775808,9223372036854775807'\n%YAML 1.2\n...\n",
    ];

    #[test]
    fn no_mutation_of_the_corpus_panics() {
        let letters = b":-[]{}#&*!|>'\"%\n\t ,?";
        testkit::Mutations::of(CORPUS).letters(letters).run(fuzz_yaml);
    }
}
