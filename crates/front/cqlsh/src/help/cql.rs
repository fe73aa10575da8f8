//! Topics of HELP about CQL.
//!
//! Owns: for each topic that cqlsh lists the forms of the statement or literal, and the place on its
//! page of documentation. Never: all of CQL; the page has it.

/// Name, place on the page, text.
pub(super) const TOPICS: &[(&str, &str, &str)] = &[
    (
        "AGGREGATES",
        "aggregates",
        "count(*), count(<column>), min(<column>), max(<column>), sum(<column>), avg(<column>), and \
         those of CREATE AGGREGATE\n\nOne value of all rows that a SELECT finds, or of each group \
         of GROUP BY. DESCRIBE AGGREGATES lists the keyspace's own.",
    ),
    (
        "ALTER_KEYSPACE",
        "alterKeyspaceStmt",
        "ALTER KEYSPACE [IF EXISTS] <keyspace> WITH replication = {...} [AND durable_writes = true \
         | false];\n\nReplicas move only with a repair, or with nodetool rebuild in a new data \
         center.",
    ),
    (
        "ALTER_MATERIALIZED_VIEW",
        "alterMVStmt",
        "ALTER MATERIALIZED VIEW [IF EXISTS] <view> WITH <option> = <value> [AND ...];",
    ),
    (
        "ALTER_TABLE",
        "alterTableStmt",
        "ALTER TABLE [IF EXISTS] <table> ADD [IF NOT EXISTS] <column> <type> [, ...];\nALTER TABLE \
         [IF EXISTS] <table> DROP [IF EXISTS] <column> [, ...];\nALTER TABLE [IF EXISTS] <table> \
         RENAME [IF EXISTS] <column> TO <name> [AND ...];\nALTER TABLE [IF EXISTS] <table> ALTER \
         <column> MASKED WITH <function> | DROP MASKED;\nALTER TABLE [IF EXISTS] <table> WITH \
         <option> = <value> [AND ...];\n\nRENAME is for columns of the primary key.",
    ),
    (
        "ALTER_TYPE",
        "alterTypeStmt",
        "ALTER TYPE [IF EXISTS] <type> ADD [IF NOT EXISTS] <field> <type>;\nALTER TYPE [IF EXISTS] \
         <type> RENAME [IF EXISTS] <field> TO <name> [AND ...];",
    ),
    (
        "ALTER_USER",
        "alterUserStmt",
        "ALTER USER [IF EXISTS] <name> [WITH PASSWORD '<password>'] [SUPERUSER | \
         NOSUPERUSER];\n\nALTER ROLE does more.",
    ),
    ("APPLY", "batchStmt", "APPLY BATCH;\n\nEnds what BEGIN BATCH began. See HELP BATCH."),
    (
        "ASCII",
        "constants",
        "'text' in single quotes, of US-ASCII only; a quote is doubled: 'it''s'. $$text$$ needs no \
         doubling.",
    ),
    (
        "BATCH",
        "batchStmt",
        "BEGIN [UNLOGGED | COUNTER] BATCH [USING TIMESTAMP <microseconds>]\n  <INSERT, UPDATE or \
         DELETE>; ...\nAPPLY BATCH;\n\nAll statements of a logged batch are done, or none is. \
         Statements of one partition are done at once. Batches do not make loading faster.",
    ),
    ("BEGIN", "batchStmt", "BEGIN [UNLOGGED | COUNTER] BATCH ... APPLY BATCH;\n\nSee HELP BATCH."),
    ("BLOB", "constants", "0x and hexadecimal digits, two for each byte: 0xcafe00. 0x is empty."),
    ("BOOLEAN", "constants", "true or false, in any case."),
    (
        "COUNTER",
        "counters",
        "UPDATE <table> SET <column> = <column> + <number> WHERE ...;\n\nA number that is only added \
         to. The other columns of its table are its primary key, or counters.",
    ),
    (
        "CREATE_AGGREGATE",
        "createAggregateStmt",
        "CREATE [OR REPLACE] AGGREGATE [IF NOT EXISTS] <name> (<type>, ...) SFUNC <function> STYPE \
         <type> [FINALFUNC <function>] [INITCOND <value>];",
    ),
    (
        "CREATE_COLUMNFAMILY",
        "createTableStmt",
        "CREATE COLUMNFAMILY ...\n\nThe old name of CREATE TABLE. See HELP CREATE_TABLE.",
    ),
    (
        "CREATE_FUNCTION",
        "createFunctionStmt",
        "CREATE [OR REPLACE] FUNCTION [IF NOT EXISTS] <name> (<argument> <type>, ...) CALLED | \
         RETURNS NULL ON NULL INPUT RETURNS <type> LANGUAGE <language> AS '<code>';",
    ),
    (
        "CREATE_INDEX",
        "createIndexStmt",
        "CREATE [CUSTOM] INDEX [IF NOT EXISTS] [<name>] ON <table> (<column> | KEYS(<column>) | \
         VALUES(<column>) | ENTRIES(<column>) | FULL(<column>)) [USING '<class>'] [WITH OPTIONS = \
         {...}];\n\nUSING 'sai' makes a storage-attached index.",
    ),
    (
        "CREATE_KEYSPACE",
        "createKeyspaceStmt",
        "CREATE KEYSPACE [IF NOT EXISTS] <keyspace> WITH replication = {'class': \
         'NetworkTopologyStrategy', '<data center>': <replicas>, ...} [AND durable_writes = true | \
         false];",
    ),
    (
        "CREATE_MATERIALIZED_VIEW",
        "createMVStmt",
        "CREATE MATERIALIZED VIEW [IF NOT EXISTS] <view> AS SELECT <columns> FROM <table> WHERE \
         <column> IS NOT NULL AND ... PRIMARY KEY (<columns>) [WITH <option> = <value> [AND \
         ...]];\n\nAll columns of the table's primary key are in that of the view, and one other at \
         most.",
    ),
    (
        "CREATE_ROLE",
        "createRoleStmt",
        "CREATE ROLE [IF NOT EXISTS] <name> [WITH PASSWORD = '<password>' AND LOGIN = true AND \
         SUPERUSER = false AND OPTIONS = {...} AND ACCESS TO DATACENTERS {...} | ACCESS TO ALL \
         DATACENTERS];",
    ),
    (
        "CREATE_TABLE",
        "createTableStmt",
        "CREATE TABLE [IF NOT EXISTS] <table> (<column> <type> [STATIC] [PRIMARY KEY], ..., PRIMARY \
         KEY (<partition key>, <clustering column>, ...)) [WITH CLUSTERING ORDER BY (<column> ASC | \
         DESC, ...) AND <option> = <value> [AND ...]];\n\nA partition key of several columns stands \
         in parentheses of its own: PRIMARY KEY ((a, b), c).",
    ),
    (
        "CREATE_TRIGGER",
        "createTriggerStmt",
        "CREATE TRIGGER [IF NOT EXISTS] <name> ON <table> USING '<class>';",
    ),
    ("CREATE_TYPE", "createTypeStmt", "CREATE TYPE [IF NOT EXISTS] <type> (<field> <type>, ...);"),
    (
        "CREATE_USER",
        "createUserStmt",
        "CREATE USER [IF NOT EXISTS] <name> [WITH PASSWORD '<password>'] [SUPERUSER | \
         NOSUPERUSER];\n\nCREATE ROLE does more.",
    ),
    ("DATE", "usingdates", "'yyyy-mm-dd', or the number of days where 2147483648 is 1970-01-01."),
    (
        "DELETE",
        "deleteStmt",
        "DELETE [<column>, ...] FROM <table> [USING TIMESTAMP <microseconds>] WHERE <key> = <value> \
         [AND ...] [IF EXISTS | IF <condition> [AND ...]];\n\nWithout all clustering columns it \
         deletes a range of rows, or the partition.",
    ),
    ("DROP_AGGREGATE", "dropAggregateStmt", "DROP AGGREGATE [IF EXISTS] <name> [(<type>, ...)];"),
    (
        "DROP_COLUMNFAMILY",
        "dropTableStmt",
        "DROP COLUMNFAMILY ...\n\nThe old name of DROP TABLE. See HELP DROP_TABLE.",
    ),
    ("DROP_FUNCTION", "dropFunctionStmt", "DROP FUNCTION [IF EXISTS] <name> [(<type>, ...)];"),
    ("DROP_INDEX", "dropIndexStmt", "DROP INDEX [IF EXISTS] <name>;"),
    (
        "DROP_KEYSPACE",
        "dropKeyspaceStmt",
        "DROP KEYSPACE [IF EXISTS] <keyspace>;\n\nAll its tables go with it, after a snapshot where \
         auto_snapshot is on.",
    ),
    ("DROP_MATERIALIZED_VIEW", "dropMVStmt", "DROP MATERIALIZED VIEW [IF EXISTS] <view>;"),
    ("DROP_ROLE", "dropRoleStmt", "DROP ROLE [IF EXISTS] <name>;"),
    (
        "DROP_TABLE",
        "dropTableStmt",
        "DROP TABLE [IF EXISTS] <table>;\n\nIts rows go with it, after a snapshot where \
         auto_snapshot is on.",
    ),
    ("DROP_TRIGGER", "dropTriggerStmt", "DROP TRIGGER [IF EXISTS] <name> ON <table>;"),
    (
        "DROP_TYPE",
        "dropTypeStmt",
        "DROP TYPE [IF EXISTS] <type>;\n\nRefused while a table, type or function has it.",
    ),
    ("DROP_USER", "dropUserStmt", "DROP USER [IF EXISTS] <name>;\n\nThe same as DROP ROLE."),
    (
        "FUNCTIONS",
        "functions",
        "SELECT <function>(<argument>, ...) FROM ...\n\nBuilt in, among others: token, cast(<column> \
         as <type>), now, uuid, current_timestamp, to_date, to_timestamp, to_unix_timestamp, \
         min_timeuuid, max_timeuuid, <type>_as_blob, blob_as_<type>, to_json, from_json, writetime, \
         ttl, abs, exp, log, log10, round, map_keys, map_values, collection_count, \
         similarity_cosine, mask_inner, mask_outer. DESCRIBE FUNCTIONS lists the keyspace's own.",
    ),
    (
        "GRANT",
        "grantRoleStmt",
        "GRANT <role> TO <role>;\nGRANT <permission> ON <resource> TO <role>;\n\nSee HELP \
         PERMISSIONS.",
    ),
    (
        "INSERT",
        "insertStmt",
        "INSERT INTO <table> (<column>, ...) VALUES (<value>, ...) [IF NOT EXISTS] [USING TIMESTAMP \
         <microseconds> [AND TTL <seconds>]];\n\nA row that is there already is overwritten, unless \
         IF NOT EXISTS stands there.",
    ),
    (
        "INSERT_JSON",
        "insertJson",
        "INSERT INTO <table> JSON '{\"<column>\": <value>, ...}' [DEFAULT NULL | UNSET] [IF NOT \
         EXISTS] [USING ...];\n\nDEFAULT UNSET leaves columns alone that are not named.",
    ),
    ("INT", "constants", "Digits, with a minus before them if wanted: -42."),
    (
        "JSON",
        "json",
        "SELECT JSON ...; INSERT INTO <table> JSON '...'; to_json(<column>); \
         from_json('<text>')\n\nSee HELP SELECT_JSON and HELP INSERT_JSON.",
    ),
    (
        "KEYWORDS",
        "appendixA",
        "Words that are reserved can be names only in double quotes: ADD ALLOW ALTER AND APPLY ASC \
         AUTHORIZE BATCH BEGIN BY COLUMNFAMILY CREATE DELETE DESC DESCRIBE DROP ENTRIES EXECUTE \
         FROM FULL GRANT IF IN INDEX INFINITY INSERT INTO IS KEYSPACE LIMIT MATERIALIZED MODIFY NAN \
         NORECURSIVE NOT NULL OF ON OR ORDER PRIMARY RENAME REVOKE SCHEMA SELECT SET TABLE \
         TO TOKEN TRUNCATE UNLOGGED UPDATE USE USING VIEW WHERE WITH",
    ),
    (
        "LIST_PERMISSIONS",
        "listPermissionsStmt",
        "LIST ALL PERMISSIONS | <permission> [ON <resource>] [OF <role> [NORECURSIVE]];",
    ),
    ("LIST_ROLES", "listRolesStmt", "LIST ROLES [OF <role> [NORECURSIVE]];"),
    ("LIST_USERS", "listUsersStmt", "LIST USERS;"),
    (
        "PERMISSIONS",
        "permissions",
        "CREATE, ALTER, DROP, SELECT, MODIFY, AUTHORIZE, DESCRIBE, EXECUTE, UNMASK, \
         SELECT_MASKED, ALL PERMISSIONS\non ALL KEYSPACES, KEYSPACE <name>, ALL TABLES IN KEYSPACE \
         <name>, TABLE <name>, ALL ROLES, ROLE <name>, ALL FUNCTIONS [IN KEYSPACE <name>], FUNCTION \
         <name>(<type>, ...)",
    ),
    (
        "REVOKE",
        "revokeRoleStmt",
        "REVOKE <role> FROM <role>;\nREVOKE <permission> ON <resource> FROM <role>;\n\nSee HELP \
         PERMISSIONS.",
    ),
    (
        "SELECT",
        "selectStmt",
        "SELECT [DISTINCT] <column, function or *>, ... FROM <table> [WHERE <column> <operator> \
         <value> [AND ...]] [GROUP BY <column>, ...] [ORDER BY <column> ASC | DESC | ANN OF <vector>] \
         [PER PARTITION LIMIT <rows>] [LIMIT <rows>] [ALLOW FILTERING];\n\nOperators: = < > <= >= IN \
         CONTAINS, CONTAINS KEY, LIKE. Conditions that no key and no index answers need ALLOW \
         FILTERING.",
    ),
    (
        "SELECT_JSON",
        "selectJson",
        "SELECT JSON [DISTINCT] ... FROM ...;\n\nEach row is one column [json].",
    ),
    (
        "TEXT",
        "constants",
        "'text' in single quotes; a quote is doubled: 'it''s'. $$text$$ needs no doubling.",
    ),
    ("TIME", "usingtime", "'hh:mm:ss[.fffffffff]', or the number of nanoseconds since midnight."),
    (
        "TIMESTAMP",
        "usingtimestamps",
        "'yyyy-mm-dd[ hh:mm[:ss[.fff]]][+hhmm]', or the number of milliseconds since 1970. Without a \
         zone it is that of the server. As a writing time (USING TIMESTAMP) it is a number of \
         microseconds.",
    ),
    ("TRUNCATE", "truncateStmt", "TRUNCATE [TABLE] <table>;\n\nRemoves all rows, on all nodes."),
    (
        "TYPES",
        "types",
        "ascii bigint blob boolean counter date decimal double duration float inet int smallint text \
         time timestamp timeuuid tinyint uuid varchar varint\nlist<type> set<type> map<type, type> \
         tuple<type, ...> vector<type, size> frozen<type>, and those of CREATE TYPE",
    ),
    (
        "UPDATE",
        "updateStmt",
        "UPDATE <table> [USING TIMESTAMP <microseconds> [AND TTL <seconds>]] SET <column> = <value> \
         [, ...] WHERE <key> = <value> [AND ...] [IF EXISTS | IF <condition> [AND ...]];\n\nA row \
         that is not there is made. Collections: SET l = l + [<value>], m[<key>] = <value>, s = s - \
         {<value>}.",
    ),
    ("USE", "useStmt", "USE <keyspace>;\n\nThe keyspace of names that do not say theirs."),
    (
        "UUID",
        "constants",
        "Hexadecimal digits in five groups: 50554d6e-29bb-11e5-b345-feff819cdc9f. uuid() makes one, \
         now() a timeuuid.",
    ),
];
