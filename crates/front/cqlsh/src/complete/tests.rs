//! Suggestions for inputs, with a small schema.

use super::*;

fn check(before: &str, line: &str, start: usize, expect: &[&str]) {
    let own = |text: &str| text.to_owned();
    let names = Names {
        current: Some(own("ks")),
        keyspaces: vec![own("ks"), own("other")],
        tables: vec![(own("ks"), own("users")), (own("other"), own("Things"))],
        types: vec![(own("ks"), own("point"))],
        data_centers: vec![own("north")],
        columns: vec![
            (own("ks"), own("users"), own("id")),
            (own("ks"), own("users"), own("name")),
            (own("other"), own("Things"), own("nature")),
        ],
        ..Names::default()
    };
    let found = complete(&grammar(), before, line, &names);
    assert_eq!(
        (found.start, found.words),
        (start, expect.iter().map(|w| own(w)).collect()),
        "{line}"
    );
}

#[test]
fn the_first_word_is_a_statement_or_command() {
    check("", "sel", 0, &["SELECT"]);
    check("", "DE", 0, &["DELETE", "DESCRIBE"]);
    check("", "SELECT 1; tru", 10, &["TRUNCATE"]);
}

#[test]
fn tables_are_those_of_the_keyspace() {
    check("", "SELECT * FROM ", 14, &["ks.", "other.", "users"]);
    check("SELECT *\n", "FROM us", 5, &["users"]);
    check("", "INSERT INTO other.", 18, &["\"Things\""]);
    check("", "DESC TABLE u", 11, &["users"]);
    check("", "USE o", 4, &["other"]);
    check("", "DROP TYPE p", 10, &["point"]);
}

#[test]
fn columns_are_those_of_the_table() {
    check("", "SELECT * FROM users WHERE na", 26, &["name"]);
    check("", "UPDATE users SET n", 17, &["name"]);
    check("", "SELECT * FROM other.\"Things\" WHERE na", 35, &["nature"]);
    check("", "SELECT na", 7, &["name"]);
    check("", "SELECT * FROM users WHERE id = 1 AND na", 37, &["name"]);
    check("", "INSERT INTO users (id, n", 23, &["name"]);
    check("", "ALTER TABLE other.\"Things\" DROP n", 32, &["nature"]);
}

#[test]
fn commands_have_their_own_words() {
    check("", "CONSISTENCY LOCAL_", 12, &["LOCAL_ONE", "LOCAL_QUORUM", "LOCAL_SERIAL"]);
    check("", "COPY users TO 'f' WITH HEA", 23, &["HEADER"]);
    check("", "SHOW V", 5, &["VERSION"]);
    check("", "SERIAL ", 7, &["CONSISTENCY"]);
    check("", "COPY users TO 'f' WITH CHUNK", 23, &[]);
    check("", "# ", 2, &[]);
}

#[test]
fn the_grammar_is_in_its_notation() {
    Grammar::parse(include_str!("cql.grammar")).unwrap();
    assert!(Grammar::parse("a : b ;").unwrap_err().contains("no rule \"b\""));
    assert!(Grammar::parse("a : ( WORD ;").is_err());
    assert!(Grammar::parse("a : | WORD ;").is_err());
}

#[test]
fn only_keywords_that_can_follow_are_suggested() {
    check("", "SELECT * FROM users ", 20, &["ALLOW", "GROUP", "LIMIT", "ORDER", "PER", "WHERE"]);
    check("", "SELECT * FROM users LIMIT 1 ", 28, &["ALLOW", "GROUP", "LIMIT", "ORDER", "PER"]);
    check("", "INSERT ", 7, &["INTO"]);
    check("", "INSERT INTO users (id) ", 23, &["VALUES"]);
    check("", "INSERT INTO users (id) VALUES ", 30, &["("]);
    check("", "INSERT INTO users (id) VALUES (1) I", 34, &["IF"]);
    check("", "UPDATE users SET name = 'a', id = 2 W", 36, &["WHERE"]);
    check(
        "",
        "DROP ",
        5,
        &[
            "AGGREGATE",
            "FUNCTION",
            "INDEX",
            "KEYSPACE",
            "MATERIALIZED",
            "ROLE",
            "TABLE",
            "TYPE",
            "USER",
        ],
    );
    check("BEGIN BATCH\nINSERT INTO users (id) VALUES (1);\n", "AP", 0, &["APPLY"]);
    check("", "SELECT nothing that fits ", 25, &[]);
}

#[test]
fn options_have_names_and_values() {
    check("", "CREATE TABLE t (a int PRIMARY KEY) WITH gc", 40, &["gc_grace_seconds"]);
    check("", "CREATE TABLE t (a in", 18, &["inet", "int"]);
    check("", "CREATE TABLE t (a frozen<po", 25, &["point"]);
    check(
        "",
        "ALTER TABLE users WITH compaction = {'class': 'Lev",
        47,
        &["LeveledCompactionStrategy'"],
    );
    check("", "ALTER TABLE users WITH cdc = ", 29, &["false", "true"]);
    let with = |map: &str| format!("ALTER TABLE users WITH {map}");
    let check_with = |map: &str, expect: &[&str]| {
        let line = with(map);
        let word = line.rfind(['\'', ' ']).map_or(0, |at| at + 1);
        check("", &line, word, expect);
    };
    // Those of the class, whatever its package; of no other one.
    let unified = "compaction = {'class': 'UnifiedCompactionStrategy', 'base_shard_count': 4, ";
    check_with(&format!("{unified}'max"), &["max_sstables_to_compact'"]);
    check_with(&format!("{unified}'compaction_w"), &[]);
    let full = "compaction = {'class': 'org.apache.cassandra.db.compaction.TimeWindowCompactionStrategy', ";
    check_with(
        &format!("{full}'compaction_w"),
        &["compaction_window_size'", "compaction_window_unit'"],
    );
    check_with(&format!("{full}'compaction_window_unit': '"), &["DAYS'", "HOURS'", "MINUTES'"]);
    check_with(&format!("{full}'max_threshold': 8, 'max_t"), &["max_threshold'"]);
    check_with(
        "compression = {'class': 'ZstdCompressor', 'c",
        &["chunk_length_in_kb'", "compression_level'"],
    );
    check_with("compression = {'class': 'SnappyCompressor', 'compr", &[]);
    check_with("compression = {'chunk_length_in_kb': 16, 'cl", &["class'"]);
    check_with(
        "compression = {'",
        &[
            "chunk_length_in_kb'",
            "class'",
            "compression_level'",
            "enabled'",
            "lz4_compressor_type'",
            "lz4_high_compressor_level'",
            "min_compress_ratio'",
        ],
    );
    check("", "CREATE KEYSPACE k WITH replication = {", 38, &["'class'"]);
    check(
        "",
        "CREATE KEYSPACE k WITH replication = {'class': 'Net",
        48,
        &["NetworkTopologyStrategy'"],
    );
    check(
        "",
        "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', ",
        74,
        &["'north'", "'replication_factor'"],
    );
}

#[test]
fn a_text_is_completed_with_files_only_where_a_file_is_expected() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.to");
    let line = format!("SOURCE '{manifest}");
    check("", &line, line.len() - "Cargo.to".len(), &["Cargo.toml"]);
    let line = format!("SELECT * FROM users WHERE name = '{manifest}");
    let found = complete(&grammar(), "", &line, &Names::default());
    assert_eq!(found.words, Vec::<String>::new());
}
