//! Refused statements, each near an accepted one, with the message of Cassandra 5.0.9.
//!
//! [`EXACT`] messages are Cassandra's to the last character. Of [`PLACE`] only the position is.

pub(super) const EXACT: &[(&str, &str)] = &[
    ("", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("FOO", "line 1:0 no viable alternative at input 'FOO' ([FOO])"),
    ("CREATE FOO", "line 1:7 no viable alternative at input 'FOO' ([CREATE] FOO)"),
    ("SELECT * FRM foo", "line 1:9 mismatched input 'FRM' expecting K_FROM (SELECT * [FRM]...)"),
    ("SELECT * FROM", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT * FROM foo WHERE", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT * FROM foo WHERE a", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT * FROM foo WHERE a = ", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT * FROM foo WHERE a = b", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT * FROM foo WHERE a = 1 AND", "line 0:-1 no viable alternative at input '<EOF>'"),
    ("SELECT FROM foo", "line 1:7 no viable alternative at input 'FROM' (SELECT [FROM]...)"),
    (
        "INSERT INTO foo VALUES (1)",
        "line 1:16 no viable alternative at input 'VALUES' (INSERT INTO [foo] VALUES...)",
    ),
    ("INSERT INTO foo (a, b) VALUES (1, 2", "line 0:-1 mismatched input '<EOF>' expecting ')'"),
    (
        "INSERT INTO foo (a) VALUES (1) USING FOO 3",
        "line 1:37 no viable alternative at input 'FOO' (...) VALUES (1) USING [FOO]...)",
    ),
    (
        "UPDATE foo SET WHERE a = 1",
        "line 1:15 no viable alternative at input 'WHERE' (UPDATE foo SET [WHERE]...)",
    ),
    (
        "UPDATE foo SET a + 1 WHERE k = 0",
        "line 1:17 no viable alternative at input '+' (UPDATE foo SET a [+]...)",
    ),
    ("UPDATE foo SET a = 1", "line 0:-1 mismatched input '<EOF>' expecting K_WHERE"),
    ("DELETE FROM foo", "line 0:-1 mismatched input '<EOF>' expecting K_WHERE"),
    (
        "DELETE a FROM foo USING TTL 5 WHERE a = 1",
        "line 1:24 mismatched input 'TTL' expecting K_TIMESTAMP (DELETE a FROM foo USING [TTL]...)",
    ),
    (
        "CREATE TABLE foo (a int, b int PRIMARY KEY c)",
        "line 1:43 mismatched input 'c' expecting ')' (..., b int PRIMARY KEY [c]...)",
    ),
    ("CREATE TABLE foo (a int", "line 0:-1 mismatched input '<EOF>' expecting ')'"),
    (
        "CREATE TABLE select (a int)",
        "line 1:13 no viable alternative at input 'select' (CREATE TABLE [select]...)",
    ),
    ("CREATE INDEX ON foo", "line 0:-1 mismatched input '<EOF>' expecting '('"),
    ("CREATE KEYSPACE foo", "line 0:-1 mismatched input '<EOF>' expecting K_WITH"),
    ("ALTER KEYSPACE x", "line 0:-1 mismatched input '<EOF>' expecting K_WITH"),
    (
        "CREATE TYPE date (a int)",
        "line 1:17 mismatched input '(' expecting '.' (CREATE TYPE date [(]...)",
    ),
    ("DROP FOO x", "line 1:5 no viable alternative at input 'FOO' ([DROP] FOO...)"),
    ("GRANT foo", "line 0:-1 mismatched input '<EOF>' expecting K_TO"),
    ("LIST foo", "line 1:5 no viable alternative at input 'foo' ([LIST] foo)"),
    ("USE 5", "line 1:4 no viable alternative at input '5' (USE [5])"),
    (";", "line 1:0 no viable alternative at input ';' ([;])"),
    (
        "SELECT * FROM system.local; SELECT",
        "line 1:28 mismatched input 'SELECT' expecting EOF (... * FROM system.local; [SELECT])",
    ),
    (
        "SELECT * FROM system.local garbage",
        "line 1:27 mismatched input 'garbage' expecting EOF (SELECT * FROM system.local [garbage])",
    ),
    (
        "SELECT * FROM system.local LIMIT 'a'",
        "line 1:33 no viable alternative at input 'a' (...* FROM system.local LIMIT [']...)",
    ),
    (
        "SELECT * FROM foo ORDER a",
        "line 1:24 mismatched input 'a' expecting K_BY (SELECT * FROM foo ORDER [a])",
    ),
    (
        "SELECT * FROM foo WHERE a IN 5",
        "line 1:29 no viable alternative at input '5' (SELECT * FROM foo WHERE [a] IN...)",
    ),
    (
        "SELECT * FROM foo WHERE (a,b) = 5",
        "line 1:32 no viable alternative at input '5' (...foo WHERE (a,b) [=] 5)",
    ),
    (
        "BEGIN BATCH INSERT INTO foo (a) VALUES (1); SELECT 1 APPLY BATCH",
        "line 1:44 mismatched input 'SELECT' expecting K_APPLY (...a) VALUES (1); [SELECT]...)",
    ),
    ("SELECT * FROM system.local /* hi", "line 1:32 mismatched character '<EOF>' expecting '*'"),
    (
        "SELECT * FROM system.local WHERE key = 'abc",
        "line 1:43 mismatched character '<EOF>' expecting '''",
    ),
    (
        "SELECT * FROM system.local WHERE key = \"abc",
        "line 1:43 mismatched character '<EOF>' expecting '\"'",
    ),
    // looking ahead ends there too
    (
        "SELECT JSON a, to_json(\"b FROM foo",
        "line 1:34 mismatched character '<EOF>' expecting '\"'",
    ),
    ("SELECT $ FROM foo", "line 1:8 mismatched character ' ' expecting '$'"),
    ("SELECT é FROM x", "line 1:7 no viable alternative at character 'é'"),
    // without a position
    ("SELECT * FROM ?.foo", "Bind variables cannot be used for keyspace names"),
    ("SELECT * FROM ?", "Bind variables cannot be used for table names"),
    ("DROP INDEX ?", "Bind variables cannot be used for index names"),
    ("DROP ROLE ?", "Bind variables cannot be used for role names"),
    (
        "UPDATE foo SET a = b + 1 WHERE k = 0",
        "Only expressions of the form X = X +<value> are supported.",
    ),
    (
        "UPDATE foo SET a = [1] + b WHERE k = 0",
        "Only expressions of the form X = <value> + X are supported.",
    ),
    (
        "UPDATE foo SET a = [1] + b c = 2 WHERE k = 0",
        "line 1:27 no viable alternative at input 'c' (...= [1] + b [c]...)",
    ),
    (
        "UPDATE foo SET a = b -1 WHERE k = 0",
        "Only expressions of the form X = X - <value> are supported.",
    ),
    ("UPDATE foo SET a = a -1, a = 3 WHERE k = 0", "Multiple incompatible setting of column a"),
    ("UPDATE foo SET u.f = 1, u.f = 3 WHERE k = 0", "Multiple incompatible setting of column u"),
    (
        "CREATE KEYSPACE foo WITH replication = {'a': ?}",
        "Invalid property value: ? for property: 'a' (bind variables are not supported in DDL queries)",
    ),
    (
        "CREATE KEYSPACE foo WITH replication = {'a': 'b'} AND replication = {'a': 'b'}",
        "Multiple definitions for property 'replication'",
    ),
    (
        "CREATE KEYSPACE foo WITH replication = {'a': 'b', 'a': 'c'}",
        "Multiple definition for property a",
    ),
    (
        "CREATE USER \"a\"",
        "Quoted strings are are not supported for user names and USER is deprecated, please use ROLE",
    ),
    (
        "CREATE ROLE a WITH PASSWORD = 'x' AND PASSWORD = 'y'",
        "Multiple definition for property 'PASSWORD'",
    ),
    (
        "CREATE ROLE a WITH PASSWORD = 'x' AND HASHED PASSWORD = 'y'",
        "Options 'password' and 'hashed password' are mutually exclusive",
    ),
    ("CREATE TYPE byte (a int)", "Invalid (reserved) user type name byte"),
    (
        "CREATE TABLE t (a frozen<int> PRIMARY KEY)",
        "frozen<> is only allowed on collections, tuples, and user-defined types (got int)",
    ),
    (
        "CREATE MATERIALIZED VIEW v AS SELECT * FROM t PRIMARY KEY (a) WITH COMPACT STORAGE",
        "COMPACT STORAGE tables are not allowed starting with version 4.0",
    ),
];

pub(super) const PLACE: &[(&str, &str)] = &[
    ("CREATE SCHEMA s WITH a = 1", "line 1:7 no viable alternative at input 'SCHEMA'"),
    ("SELECT a b FROM foo", "line 1:9 "),
    ("SELECT 5-3 FROM system.local", "line 1:8 mismatched input '-3' expecting K_FROM"),
    ("SELECT 1x FROM system.local", "line 1:8 mismatched input 'x' expecting K_FROM"),
    ("SELECT (1, 2 FROM foo", "line 1:13 mismatched input 'FROM' expecting ')'"),
    (
        "CREATE KEYSPACE foo WITH replication = ?",
        "line 1:39 no viable alternative at input '?' (CREATE KEYSPACE foo WITH [replication] =...)",
    ),
    ("SELECT * FROM system.local WHERE key = 0xABCG", "line 1:44 "),
    ("SELECT * FROM system.local WHERE key = 1.5.5", "line 1:42 "),
    ("SELECT count( FROM foo", "line 1:14 no viable alternative at input 'FROM'"),
    ("SELECT cast(a AS foo) FROM foo", "line 1:17 no viable alternative at input 'foo'"),
    ("SELECT * FROM foo WHERE a = ''''''x", "line 1:34 "),
];

/// As a Cassandra 5.0.9 says it.
pub(super) const FIELDS: &[(&str, &str)] = &[
    ("SELECT [k].x y FROM t", "1:10"),
    ("SELECT (k).x y FROM t", "1:10"),
    ("SELECT f(k).x 1, k FROM t", "1:11"),
    ("SELECT [k].5 FROM t", "1:10"),
    ("SELECT [k]. FROM t", "1:10"),
    ("SELECT k.x y FROM t", "1:11"),
    ("SELECT -k.x y FROM t", "1:12"),
    ("SELECT k.5 FROM t", "1:9"),
    ("SELECT k.z.x y FROM t", "1:8"),
    ("SELECT k[0].5 FROM t", "1:8"),
    ("SELECT ?.x y FROM t", "1:11"),
    ("SELECT :a.x y FROM t", "1:9"),
    ("SELECT [k].x + 1 y FROM t", "1:17"),
    ("SELECT [k].x, y z FROM t", "1:16"),
    ("SELECT v, [k].x y FROM t", "1:13"),
    ("SELECT JSON [k].x y FROM t", "1:15"),
    ("SELECT JSON k.x y FROM t", "1:12"),
    ("SELECT DISTINCT [k].x y FROM t", "1:19"),
    ("SELECT DISTINCT k.x y FROM t", "1:16"),
    ("SELECT JSON DISTINCT [k].x y FROM t", "1:24"),
    ("SELECT JSON DISTINCT k.x y FROM t", "1:12"),
    ("SELECT JSON DISTINCT -k.x y FROM t", "1:12"),
    ("SELECT JSON DISTINCT -k y FROM t", "1:12"),
    ("SELECT (int)k y FROM t", "1:12"),
    ("SELECT (int)k.x y FROM t", "1:12"),
    ("SELECT (int)k.x.z y FROM t", "1:13"),
    ("SELECT (list<int>)k y FROM t", "1:12"),
    ("SELECT -(int)k. FROM t", "1:13"),
    ("SELECT f((int)k y FROM t", "1:14"),
    ("SELECT (k) AS 5 FROM t", "1:14"),
    ("SELECT k.x;", "1:8"),
    ("SELECT k[0];", "1:8"),
    ("SELECT k FROM t GROUP BY k.x;", "1:26"),
    ("SELECT k FROM t GROUP BY k[0];", "1:26"),
    ("SELECT v, json (k) FROM t", "1:15"),
];
