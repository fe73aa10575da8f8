//! Statements put together from pieces of others are planned, run or refused, never worse.

use super::*;

const PIECES: &[&str] = &[
    "SELECT * FROM t WHERE k = 1 AND c1 = 1 AND c2 > 0 ORDER BY c1 DESC LIMIT 3",
    "SELECT DISTINCT k , st FROM t WHERE st = 7 LIMIT 2 ALLOW FILTERING",
    "SELECT count ( * ) , max ( v ) , k FROM t GROUP BY k , c1 LIMIT 2",
    "SELECT JSON k , m [ 'a' ] , m [ 'a' .. 'b' ] , u . street FROM t WHERE k IN ( 1 , 2 )",
    "SELECT writetime ( m ) , ttl ( v ) , ( v , w ) , [ v ] , { v } , c1 FROM t LIMIT 9",
    "SELECT v FROM t WHERE ( c1 , c2 ) > ( 1 , 2 ) AND ( c1 ) < ( 3 ) AND k = 1",
    "SELECT v FROM t WHERE k = 1 AND ( c1 , c2 ) IN ( ( 1 , 1 ) , ( 2 , 1 ) )",
    "SELECT cast ( v AS text ) , ( int ) 1 , v + 1 , - v , token ( k ) FROM t",
    "SELECT v FROM d WHERE k = 1 AND ( a , b , c ) >= ( 1 , 1 , 1 ) ORDER BY a ASC , b DESC",
    "SELECT v FROM t WHERE token ( k ) > 5 AND token ( k ) <= token ( 3 )",
    "SELECT v FROM t WHERE v > 0 AND v < 3 AND c2 >= 1 PER PARTITION LIMIT 1 ALLOW FILTERING",
    "SELECT v , k FROM t WHERE k IN ( 2 , 1 ) AND c1 IN ( 2 , 1 ) AND c2 IN ( 1 , 2 )",
    "SELECT m , l FROM t WHERE m CONTAINS KEY 'a' AND l CONTAINS 1 AND m [ 'a' ] = 1 ALLOW \
     FILTERING",
    "SELECT a , b FROM p WHERE a = 1 AND b IN ( 'x' , 'a' , 'b' ) LIMIT 1",
    "SELECT sum ( v ) , avg ( - v ) , min ( c1 ) FROM t WHERE k IN ( 1 , 2 ) GROUP BY k",
];

/// Words that may stand for each other without a syntax error.
const ALIKE: &[&[&str]] = &[
    &["k", "c1", "c2", "v", "w", "st", "m", "l", "s", "u", "fm", "fu", "a", "b", "c"],
    &["0", "1", "2", "3", "7", "-1", "null", "?", "'a'", "'x'", "{}", "[1]", "(1, 1)", "v"],
    &["=", ">", "<", ">=", "<=", "!=", "CONTAINS"],
    &["ASC", "DESC"],
    &["t", "d", "p", "kv"],
    &["max", "min", "count", "sum", "avg", "ttl", "writetime", "token", "to_json", "abs"],
    &["AND", ",", "OR"],
];

#[test]
fn spliced_statements_never_panic() {
    let mut world = World::new();
    for text in [
        "INSERT INTO t (k,c1,c2,v,m,l,u) VALUES (1,1,1,1,{'a':1},[1],{street:'s',zip:1})",
        "INSERT INTO t (k,c1,c2,v) VALUES (1,2,1,2)",
        "INSERT INTO t (k,st) VALUES (2,7)",
        "INSERT INTO d (k,a,b,c,v) VALUES (1,1,1,1,1)",
        "INSERT INTO p (a,b,v) VALUES (1,'x',1)",
    ] {
        world.write(text);
    }
    let pieces: Vec<Vec<&str>> = PIECES.iter().map(|p| p.split(' ').collect()).collect();
    let mut seed = 42u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let (mut ran, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let mut words = pieces[random(pieces.len())].clone();
        if random(8) == 0 {
            let other = &pieces[random(pieces.len())];
            let from = random(other.len());
            let taken = &other[from..(from + 1 + random(3)).min(other.len())];
            let at = random(words.len());
            let until = (at + random(3)).min(words.len());
            words.splice(at..until, taken.iter().copied());
        }
        for _ in 0..random(4) {
            let at = random(words.len());
            let alike: Vec<_> = ALIKE.iter().filter(|a| a.contains(&words[at])).collect();
            if let [first, ..] = alike.as_slice() {
                words[at] = first[random(first.len())];
            }
        }
        let text = words.join(" ");
        let Ok(statement) = cql_syntax::parse(&text) else { continue };
        if !matches!(statement.kind, StatementKind::Select(_)) {
            continue;
        }
        match world.page(&text, &[], None, None) {
            Ok((rows, _)) => {
                ran += 1;
                if let Ok(paged) = world.pages(&text, 1) {
                    assert_eq!(paged, rows, "{text}");
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(ran > 300 && refused > 300, "{ran} ran, {refused} refused");
}
