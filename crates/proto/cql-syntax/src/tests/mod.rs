mod corpus;
mod refused;

use crate::ast::*;
use crate::{NESTING_MAX, fuzz, parse, parse_term, parse_type, split_statements};
use corpus::{ACCEPTED, EXTENSIONS};

fn parsed(text: &str) -> Statement {
    parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn select(text: &str) -> Select {
    match parsed(text).kind {
        StatementKind::Select(select) => *select,
        other => panic!("{text}: {other:?}"),
    }
}

fn message(text: &str) -> String {
    match parse(text) {
        Ok(statement) => panic!("{text} was accepted: {statement:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_statement_reads_back_from_its_printed_form() {
    for text in ACCEPTED.iter().chain(EXTENSIONS) {
        let statement = parsed(text);
        let printed = statement.to_string();
        let again = parse(&printed).unwrap_or_else(|e| panic!("{text} -> {printed}: {e}"));
        assert_eq!(again, statement, "{text} -> {printed}");
        assert_eq!(again.to_string(), printed);
    }
}

#[test]
fn every_prefix_of_a_statement_returns() {
    for text in ACCEPTED.iter().chain(EXTENSIONS) {
        for (end, _) in text.char_indices() {
            fuzz::fuzz_parse(&text.as_bytes()[..end]);
        }
    }
}

#[test]
fn keywords_and_names_are_case_insensitive() {
    for text in ACCEPTED {
        // Durations, strings and quoted names mean something else in the other case.
        if text.contains(['\'', '"', '$', 'P']) {
            continue;
        }
        assert_eq!(parsed(&text.to_lowercase()).kind.name(), parsed(text).kind.name());
    }
    assert_eq!(parsed("sElEcT Foo FrOm KS.Bar"), parsed("SELECT foo FROM ks.bar"));
    assert_ne!(parsed("SELECT \"Foo\" FROM bar"), parsed("SELECT foo FROM bar"));
}

#[test]
fn the_target_of_a_local_index_is_read_as_the_statement_that_made_it() {
    for (json, statement) in [
        (r#"{"pk":["p"],"ck":["v"]}"#, "(p), v"),
        (r#"{ "pk" : [ "p", "Q" ], "ck": ["values(m)"] }"#, r#"(p, "Q"), values(m)"#),
        (r#"{"pk":["select"],"ck":["full(A b)"]}"#, r#"("select"), full("A b")"#),
        (r#"{"pk":["p"],"ck":["keys(m)","entries(m)"]}"#, "(p), keys(m), entries(m)"),
        (r#"{"pk":["p"],"ck":["Keys(m)"]}"#, r#"(p), "Keys(m)""#),
    ] {
        let of = |target: &str| parsed(&format!("CREATE INDEX i ON t ({target})")).kind;
        let names = |kind: StatementKind| match kind {
            StatementKind::CreateIndex(index) => {
                let columns = index.targets.iter().map(|t| (t.kind, t.column.text.clone()));
                let key = index.partition_key.unwrap_or_default();
                (key.into_iter().map(|c| c.text).collect::<Vec<_>>(), columns.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(names(of(json)), names(of(statement)), "{json}");
    }
    for (target, error) in [
        ("(p)", "line 1:24 mismatched input ')' expecting ','"),
        ("()", "no viable alternative"),
        ("(p),", "no viable alternative"),
        ("v, (p)", "no viable alternative"),
        ("(keys(p)), v", "mismatched input '(' expecting ')'"),
        ("{}", "mismatched input '}' expecting \"pk\""),
        (r#"{"ck":["v"],"pk":["p"]}"#, "expecting \"pk\""),
        (r#"{"pk":["p"]}"#, "expecting ','"),
        (r#"{"pk":["p"],"ck":[]}"#, "expecting QUOTED_NAME"),
        (r#"{"pk":["p"],"ck":["a\"b"]}"#, "expecting"),
    ] {
        let found = message(&format!("CREATE INDEX i ON t ({target})"));
        assert!(found.contains(error), "{target}: {found}");
    }
}

#[test]
fn refusals_have_the_message_of_cassandra() {
    let mut wrong = Vec::new();
    for (text, expected) in refused::EXACT {
        let found = message(text);
        if found != *expected {
            wrong.push(format!("{text}\n  wanted {expected}\n  found  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (text, expected) in refused::PLACE {
        let found = message(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
}

#[test]
fn a_statement_with_one_token_left_out_is_refused_or_reads_back() {
    for text in ACCEPTED {
        let words: Vec<&str> = text.split(' ').collect();
        for left_out in 0..words.len() {
            let mut fewer = words.clone();
            fewer.remove(left_out);
            fuzz::fuzz_parse(fewer.join(" ").as_bytes());
        }
    }
}

#[test]
fn lines_are_counted_from_one_and_columns_from_zero() {
    assert!(message("SELECT *\n  FRM t").starts_with("line 2:2 mismatched input 'FRM'"));
    // Columns are UTF-16 units: the emoji counts two.
    assert!(message("SELECT '\u{1F600}' FRM t").starts_with("line 1:12 "));
    assert_eq!(parse("SELECT *\n  FRM t").map_err(|e| e.offset), Err(11));
}

#[test]
fn reserved_words_are_no_names_and_the_others_are() {
    let reserved = "add allow alter and apply asc authorize batch begin by columnfamily create \
        delete desc describe drop entries execute from full grant if in index infinity insert into \
        is keyspace limit materialized modify nan norecursive not null of on or order primary \
        rename revoke schema select set table to token truncate unlogged update use using view \
        where with";
    for word in reserved.split_whitespace() {
        assert!(crate::is_reserved(word), "{word}");
        assert!(parse(&format!("USE {word}")).is_err(), "{word}");
        assert_eq!(Ident::new(word).to_cql(), format!("\"{word}\""));
    }
    for word in "key json ttl count distinct cast int timestamp as per list map ann vector between \
        timeout bypass cache prune static values default unset filtering exists"
        .split_whitespace()
    {
        assert!(!crate::is_reserved(word), "{word}");
        assert!(parse(&format!("SELECT {word} FROM t WHERE {word} = 1")).is_ok(), "{word}");
        assert_eq!(Ident::new(word).to_cql(), word);
    }
    // No keywords of Cassandra, but not names either.
    assert!(crate::is_reserved("true") && parse("USE true").is_err());
}

#[test]
fn names_are_quoted_when_they_must_be() {
    for (name, written) in [
        ("a", "a"),
        ("a_1", "a_1"),
        ("A", "\"A\""),
        ("1a", "\"1a\""),
        ("_a", "\"_a\""),
        ("", "\"\""),
        ("a b", "\"a b\""),
        ("a\"b", "\"a\"\"b\""),
        ("é", "\"é\""),
    ] {
        assert_eq!(Ident::new(name).to_cql(), written);
    }
}

#[test]
fn bind_markers_are_numbered_in_order_of_appearance() {
    let statement = parsed("UPDATE t USING TTL :t SET a = ?, m[:k] = :\"V\" WHERE k = ? IF x = :t");
    let names: Vec<Option<&str>> =
        statement.bind_markers.iter().map(|name| name.as_deref()).collect();
    assert_eq!(names, [Some("t"), None, Some("k"), Some("V"), None, Some("t")]);
    let StatementKind::Update(update) = statement.kind else { panic!("not an update") };
    let Conditions::If(conditions) = &update.conditions else { panic!("no conditions") };
    let Comparison::Operator(Operator::Eq, Term::Bind(marker)) = &conditions[0].comparison else {
        panic!("no marker")
    };
    assert_eq!((marker.index, marker.name.as_deref()), (5, Some("t")));
}

#[test]
fn literals_keep_their_kind_and_text() {
    let check = |text: &str, kind: LiteralKind| match parse_term(text) {
        Ok(Term::Literal(literal)) => assert_eq!(literal.kind, kind, "{text}"),
        other => panic!("{text}: {other:?}"),
    };
    let owned = str::to_owned;
    check("'it''s'", LiteralKind::String(owned("it's")));
    check("''", LiteralKind::String(owned("")));
    check("''''", LiteralKind::String(owned("'")));
    check("$$it's $1$$", LiteralKind::String(owned("it's $1")));
    check("-007", LiteralKind::Integer(owned("-007")));
    check("10.", LiteralKind::Float(owned("10.")));
    check("1.5e-3", LiteralKind::Float(owned("1.5e-3")));
    check("1E5", LiteralKind::Float(owned("1E5")));
    check("-nan", LiteralKind::Float(owned("NaN")));
    check("-InFinity", LiteralKind::Float(owned("-Infinity")));
    check("TRUE", LiteralKind::Boolean(true));
    check("0XaB", LiteralKind::Hex(owned("aB")));
    check("1h30m", LiteralKind::Duration(owned("1h30m")));
    check("-1mo2ms3µs", LiteralKind::Duration(owned("-1mo2ms3µs")));
    check("P1Y", LiteralKind::Duration(owned("P1Y")));
    check("P1Y2D", LiteralKind::Duration(owned("P1Y2D")));
    check("-P2MT1H", LiteralKind::Duration(owned("-P2MT1H")));
    check("PT1M2S", LiteralKind::Duration(owned("PT1M2S")));
    check("P0001-01-01T00:00:00", LiteralKind::Duration(owned("P0001-01-01T00:00:00")));
    check("P3W", LiteralKind::Duration(owned("P3W")));
    let uuid = uuid::Uuid::from_u128(0xABCD_EF01_2345_6789_0123_4567_89AB_CDEF);
    check("ABCDEF01-2345-6789-0123-456789abcdef", LiteralKind::Uuid(uuid));
    for text in ["P", "PT", "P1", "p1y", "1h30", "1.5h", "0x1g", "1.2.3", "'a", "$$a$", "1e", "+1"]
    {
        assert!(parse_term(text).is_err(), "{text}");
    }
}

#[test]
fn hex_literals_end_at_the_first_other_byte_however_long_they_are() {
    for digits in (0..=70).chain([200]) {
        let text = "aF".repeat(100).get(..digits).unwrap().to_owned();
        match parse_term(&format!("0x{text}")) {
            Ok(Term::Literal(literal)) => assert_eq!(literal.kind, LiteralKind::Hex(text.clone())),
            other => panic!("{digits}: {other:?}"),
        }
        assert!(parse_term(&format!("0x{text}g")).is_err(), "{digits}");
    }
}

#[test]
fn ranges_split_numbers() {
    let bounds = |text: &str| match &select(text).selection {
        Selection::Items(items) => match &items[0].selector {
            Selector::Slice { from, to, .. } => {
                (from.as_deref().map(Term::to_string), to.as_deref().map(Term::to_string))
            }
            other => panic!("{other:?}"),
        },
        Selection::Wildcard => panic!("wildcard"),
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(bounds("SELECT l[1..2] FROM t"), (some("1"), some("2")));
    assert_eq!(bounds("SELECT l[1...2] FROM t"), (some("1."), some("2")));
    assert_eq!(bounds("SELECT l[..-2] FROM t"), (None, some("-2")));
    assert_eq!(bounds("SELECT l['a'..] FROM t"), (some("'a'"), None));
    assert!(parse("SELECT l[..] FROM t").is_err());
}

#[test]
fn products_bind_tighter_than_sums_and_to_the_left() {
    let Ok(Term::Binary { op: ArithmeticOp::Subtract, left, right, .. }) =
        parse_term("1 + 2 * 3 - 4")
    else {
        panic!("not a difference")
    };
    assert_eq!(left.to_string(), "1 + 2 * 3");
    assert_eq!(right.to_string(), "4");
    assert!(matches!(*left, Term::Binary { op: ArithmeticOp::Add, .. }));
}

#[test]
fn braces_are_set_map_or_user_type_value() {
    assert!(matches!(parse_term("{}"), Ok(Term::Set(items, _)) if items.is_empty()));
    assert!(matches!(parse_term("{1, 2}"), Ok(Term::Set(..))));
    assert!(matches!(parse_term("{1: 2}"), Ok(Term::Map(..))));
    assert!(matches!(parse_term("{f(): 2}"), Ok(Term::Map(..))));
    assert!(matches!(parse_term("{:a : 2}"), Ok(Term::Map(..))));
    assert!(matches!(parse_term("{a: 2}"), Ok(Term::Udt(..))));
    assert!(matches!(parse_term("{key: 2, \"B\": 3}"), Ok(Term::Udt(..))));
    for text in ["{1: 2, 3}", "{1, 2: 3}", "{a: 1, 2: 3}", "{a}", "{,}", "{1,}", "[1,]", "()"] {
        assert!(parse_term(text).is_err(), "{text}");
    }
}

#[test]
fn parentheses_are_tuple_or_type_hint() {
    assert!(matches!(parse_term("(1)"), Ok(Term::Tuple(..))));
    assert!(matches!(parse_term("('a')"), Ok(Term::Tuple(..))));
    assert!(matches!(parse_term("('a') ?"), Ok(Term::TypeHint { .. })));
    assert!(matches!(parse_term("(ks.u) {a: 1}"), Ok(Term::TypeHint { .. })));
    assert!(matches!(parse_term("(list<int>) []"), Ok(Term::TypeHint { .. })));
    assert!(parse_term("(a)").is_err());
    let items = match select("SELECT (a), (a) AS b, (a) b, (int) 1 FROM t").selection {
        Selection::Items(items) => items,
        Selection::Wildcard => panic!("wildcard"),
    };
    assert!(matches!(items[0].selector, Selector::Tuple(..)));
    assert!(matches!(items[1].selector, Selector::Tuple(..)) && items[1].alias.is_some());
    assert!(matches!(items[2].selector, Selector::TypeHint { .. }));
    assert!(matches!(items[3].selector, Selector::TypeHint { .. }));
}

#[test]
fn types_read_back() {
    for text in [
        "int",
        "varchar",
        "list<int>",
        "map<text, frozen<set<uuid>>>",
        "tuple<int, vector<float, 3>>",
        "vector<int, -1>",
        "ks.u",
        "\"U\"",
        "\"int\"",
        "\"date\"",
        "\"ttl\"",
        "map",
        "key",
        "'a.b.C'",
    ] {
        let ty = parse_type(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(ty.to_string(), text);
    }
    for text in [
        "",
        "list",
        "list<>",
        "map<int>",
        "tuple<>",
        "vector<int>",
        "vector<int, 1.5>",
        "vector<int, 99999999999>",
        "frozen<int>",
        "frozen<'a'>",
        "ttl",
        "byte",
        "set",
        "int int",
        "a.b.c",
        "list<int>>",
        "foo<int>",
    ] {
        // `list` alone is the user type of that name.
        assert_eq!(parse_type(text).is_err(), text != "list", "{text}");
    }
}

#[test]
fn assignments_have_their_operation() {
    let operation = |text: &str| match parsed(&format!("UPDATE t SET {text} WHERE k = 1")).kind {
        StatementKind::Update(update) => update.assignments[0].operation.clone(),
        other => panic!("{other:?}"),
    };
    assert!(matches!(operation("a = 1"), Operation::Set(_)));
    assert!(matches!(operation("a = a + 1"), Operation::Add(_)));
    assert!(matches!(operation("a += 1"), Operation::Add(_)));
    assert!(matches!(operation("a = a - 1"), Operation::Subtract(_)));
    assert!(matches!(operation("a = a -1"), Operation::Add(t) if t.to_string() == "-1"));
    assert!(matches!(operation("a -= 1"), Operation::Subtract(_)));
    assert!(matches!(operation("a = [1] + a"), Operation::Prepend(_)));
    assert!(matches!(operation("a = [1] + b(2)"), Operation::Set(_)));
    assert!(matches!(operation("a[1] = 2"), Operation::SetElement { .. }));
    assert!(matches!(operation("a.b = 2"), Operation::SetField { .. }));
    assert!(parse("UPDATE t SET a.b += 2 WHERE k = 1").is_err());
}

#[test]
fn spans_point_at_the_text() {
    let text = "SELECT a, f( b ) AS c FROM t WHERE k IN (1,  2) AND (x) = (3)";
    let select = select(text);
    let Selection::Items(items) = &select.selection else { panic!("wildcard") };
    let texts: Vec<&str> = items.iter().map(|item| item.span.of(text)).collect();
    assert_eq!(texts, ["a", "f( b )"]);
    let texts: Vec<&str> = select.relations.iter().map(|r| r.span.of(text)).collect();
    assert_eq!(texts, ["k IN (1,  2)", "(x) = (3)"]);
    let term = parse_term("1 + [ 2 ]").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(term.span().of("1 + [ 2 ]"), "1 + [ 2 ]");
}

/// INV-parser-1.
#[test]
fn nesting_is_limited() {
    // The last level is the number itself.
    let nested = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [("[", "]"), ("(", ")"), ("{", "}"), ("f(", ")"), ("{1:", "}")] {
        assert!(parse_term(&nested(open, close, NESTING_MAX - 1)).is_ok(), "{open}");
        let deeper = parse_term(&nested(open, close, NESTING_MAX));
        assert!(deeper.is_err_and(|e| e.message.contains("nested more than")), "{open}");
        let far = nested(open, close, 200_000);
        assert!(parse_term(&far).is_err() && parse(&format!("SELECT {far} FROM t")).is_err());
        assert!(parse_term(&open.repeat(200_000)).is_err());
    }
    for text in [
        format!("SELECT {}a FROM t", "- ".repeat(200_000)),
        format!("SELECT a{} FROM t", ".a".repeat(200_000)),
        format!("SELECT a{} FROM t", "[1]".repeat(200_000)),
        format!("SELECT {}a FROM t", "(int)".repeat(200_000)),
        format!("SELECT 1{} FROM t", " + 1".repeat(200_000)),
        format!("SELECT * FROM t WHERE {}a = 1", "(".repeat(200_000)),
        format!("SELECT * FROM t WHERE a = {}1", "(int)".repeat(200_000)),
        format!("SELECT * FROM t WHERE a = 1{}", " * 1".repeat(200_000)),
        format!("SELECT * FROM t WHERE a = {}1", "CAST(".repeat(200_000)),
        format!("CREATE TABLE t (a {}int", "list<".repeat(200_000)),
    ] {
        assert!(message(&text).contains("nested more than"));
    }
    assert!(
        parse_type(&format!(
            "{}int{}",
            "set<".repeat(NESTING_MAX - 1),
            ">".repeat(NESTING_MAX - 1)
        ))
        .is_ok()
    );
    assert!(
        parse_type(&format!("{}int{}", "set<".repeat(NESTING_MAX), ">".repeat(NESTING_MAX)))
            .is_err()
    );
    // Each expression has its own count.
    let sum = format!("a = 1{}", " + 1".repeat(NESTING_MAX));
    assert!(parse(&format!("UPDATE t SET b = 1, {sum} WHERE {sum} AND {sum}")).is_ok());
}

/// INV-parser-1.
#[test]
fn the_deepest_tree_needs_little_stack() {
    let deepest = format!(
        "SELECT {open}a{close}{sum} FROM t WHERE x = {open}1{close}{sum}",
        open = "f(".repeat(NESTING_MAX - 1),
        close = ")".repeat(NESTING_MAX - 1),
        sum = " + 1".repeat(NESTING_MAX),
    );
    let thread = std::thread::Builder::new().stack_size(1024 * 1024);
    let walked = thread.spawn(move || {
        let statement = parsed(&deepest);
        let again = parsed(&statement.to_string());
        again == statement.clone() && !format!("{again:?}").is_empty()
    });
    let walked = walked.map(|handle| handle.join().is_ok_and(|equal| equal));
    assert!(walked.is_ok_and(|equal| equal));
}

#[test]
fn scripts_are_cut_between_statements() {
    let script = "-- one; two\nSELECT ';' FROM t; ;\nINSERT INTO t (a) VALUES ($$;$$) /* ; */;\n\
        BEGIN BATCH DELETE FROM t WHERE \";\" = 1; APPLY BATCH; // end;\n USE ks";
    assert_eq!(
        split_statements(script),
        [
            "SELECT ';' FROM t",
            "INSERT INTO t (a) VALUES ($$;$$) /* ; */",
            "BEGIN BATCH DELETE FROM t WHERE \";\" = 1; APPLY BATCH",
            "USE ks",
        ]
    );
    assert!(split_statements(" ; -- x\n").is_empty());
    assert_eq!(split_statements("a é; b 'c"), ["a é", "b 'c"]);
}

/// Generator of the same bytes on every run (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap_or(0)
    }
}

#[test]
fn mutated_statements_never_panic_and_read_back() {
    let corpus: Vec<&str> = ACCEPTED.iter().chain(EXTENSIONS).copied().collect();
    let pieces: Vec<&str> = corpus.iter().flat_map(|text| text.split(' ')).collect();
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
    for _ in 0..10_000 {
        let mut words: Vec<&str> = corpus[rng.below(corpus.len())].split(' ').collect();
        for _ in 0..=rng.below(3) {
            let at = rng.below(words.len());
            match rng.below(4) {
                0 if words.len() > 1 => {
                    words.remove(at);
                }
                1 => words.insert(at, pieces[rng.below(pieces.len())]),
                2 => words[at] = pieces[rng.below(pieces.len())],
                _ => {
                    let other = rng.below(words.len());
                    words.swap(at, other);
                }
            }
        }
        let mut bytes = words.join(" ").into_bytes();
        if rng.below(2) == 0 && !bytes.is_empty() {
            let at = rng.below(bytes.len());
            bytes[at] = u8::try_from(rng.below(256)).unwrap_or(0);
        }
        fuzz::fuzz_parse(&bytes);
    }
}

#[test]
fn a_field_that_does_not_fit_is_told_where_cassandra_tells_it() {
    for (text, place) in refused::FIELDS.iter().chain(refused::WORDS) {
        let message = message(text);
        let told = message.strip_prefix("line ").and_then(|rest| rest.split(' ').next());
        assert_eq!(told, Some(*place), "{text}: {message}");
    }
    for text in
        ["SELECT k.x FROM t GROUP BY k.x", "SELECT [k].x, (int)k.x.y AS z, -f(k)[0].x FROM t"]
    {
        assert!(parse(text).is_ok(), "{text}");
    }
}

/// INV-parser-2: in any selection each token is taken a bounded number of times, so that twice the
/// text takes twice the steps.
#[test]
fn each_token_is_taken_a_bounded_number_of_times() {
    let taken = |text: &str| {
        crate::parser::TAKEN.set(0);
        let _ = parse(text);
        crate::parser::TAKEN.get()
    };
    let hints = |hints: usize, what: &str| {
        format!("SELECT {}{what}{} FROM t", "(x)[".repeat(hints), "]".repeat(hints))
    };
    let many = |item: &str, n: usize| vec![item; n].join(", ");
    for n in [10, 100, 1000, 10_000] {
        for text in [
            format!("SELECT JSON DISTINCT {} FROM t", many("a", n)),
            format!("SELECT JSON DISTINCT {} FROM", many("(int)(k)[0]", n)),
            format!("SELECT {} FROM t", many("(a.b)(k)", n)),
            hints(7, &many("(k)[..1]", n)),
            hints(8, &many("k", n)),
            format!("INSERT INTO t (a) VALUES ({})", many("(1)", n)),
        ] {
            let tokens = crate::lexer::lex(&text).0.len();
            let taken = taken(&text);
            assert!(taken <= 12 * tokens, "INV-parser-2: {taken} for {tokens} tokens: {text:.60}");
        }
    }
}

#[test]
fn parentheses_in_many_type_hints_are_no_others() {
    let nested = |hints: usize| {
        format!("SELECT {}(k)[..1]{} FROM t", "(x)[".repeat(hints), "]".repeat(hints))
    };
    assert!(parse(&nested(7)).is_ok());
    assert!(parse(&nested(8)).is_err());
}

#[test]
fn json_and_distinct_are_columns_where_what_follows_is_no_selection() {
    for (text, words) in [
        ("SELECT json[1..2] FROM t", (false, false)),
        ("SELECT distinct[1..?] FROM t", (false, false)),
        ("SELECT JSON distinct[?..2] FROM t", (true, false)),
        ("SELECT json[1] FROM t", (true, false)),
        ("SELECT JSON AS AS x FROM t", (true, false)),
        ("SELECT JSON DISTINCT [?] FROM t", (true, true)),
    ] {
        let Select { json, distinct, .. } = select(text);
        assert_eq!((json, distinct), words, "{text}");
        let markers = parsed(text).bind_markers;
        assert_eq!(markers.len(), text.matches('?').count(), "{text}: markers are counted once");
    }
}
