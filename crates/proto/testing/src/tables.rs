//! Tables of the tests on modifications and conditional statements.

use stdx::WallMicros;

/// The time of executions.
pub const NOW: WallMicros = WallMicros(1_700_000_000_000_000);

/// A table for each form of keys and of columns.
pub const TABLES: &[&str] = &[
    "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TYPE ks.address (street text, zip int)",
    "CREATE TABLE ks.t (k int PRIMARY KEY, v int, s text)",
    "CREATE TABLE ks.c (a int, b text, c1 int, c2 text, st int static, v int, \
     PRIMARY KEY ((a, b), c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 ASC)",
    "CREATE TABLE ks.r (k int, c1 int, c2 int, v int, PRIMARY KEY (k, c1, c2)) \
     WITH CLUSTERING ORDER BY (c1 DESC, c2 DESC)",
    "CREATE TABLE ks.m (k int PRIMARY KEY, l list<int>, s set<text>, m map<text, int>, \
     fl frozen<list<int>>, u address, fu frozen<address>, t tuple<int, text>, \
     vec vector<float, 3>, b blob, d double, ts timestamp, tu timeuuid, n varint)",
    "CREATE TABLE ks.x (k text PRIMARY KEY, v text) WITH default_time_to_live = 60",
    "CREATE TABLE ks.cst (k int PRIMARY KEY, v int, w text) WITH COMPACT STORAGE",
    "CREATE TABLE ks.cde (k int, c text, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
    "CREATE TABLE ks.cco (k int, c int, d int, v int, PRIMARY KEY (k, c, d)) WITH COMPACT STORAGE",
    "CREATE TABLE ks.cno (k int, c int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
];
