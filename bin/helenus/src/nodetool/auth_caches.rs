//! `invalidaterolescache` and its like: of roles and permissions nothing is remembered, as every node has
//! them in its metadata and a change counts from the next statement on. So there is nothing to forget, and
//! whoever asks for it has what he wants, in the words of Cassandra's tool: none.

use admin::model::NodeReport;

use super::cluster::bad;
use super::{Failure, Line};

/// `None`: another one's command.
pub(super) fn run(line: &Line) -> Option<Result<String, Failure>> {
    Some(match line.verb {
        "invalidaterolescache" | "invalidatenetworkpermissionscache" => asked(line),
        "invalidatepermissionscache" => permissions(line),
        _ => return None,
    })
}

/// The node must be there, as it would have to be to forget something.
fn asked(line: &Line) -> Result<String, Failure> {
    let _: NodeReport = line.api.get("/api/v1/node")?;
    Ok(String::new())
}

/// Options that name resources.
const RESOURCES: [&str; 9] = [
    "--all-keyspaces",
    "--keyspace",
    "--table",
    "--all-roles",
    "--role",
    "--all-functions",
    "--functions-in-keyspace",
    "--all-mbeans",
    "--mbean",
];

/// What is wrong with the line is told as Cassandra's tool does.
fn check(line: &Line) -> Result<(), &'static str> {
    // An empty name is none.
    let named = |name: &str| line.value(name).is_some_and(|value| !value.is_empty());
    let given = |name: &str| if name.starts_with("--all") { line.has(name) } else { named(name) };
    // Not looked at without a role, as in Cassandra: --all-tables.
    let has_resource = RESOURCES.iter().any(|name| given(name)) || named("--function");
    match line.arguments.as_slice() {
        [] if has_resource => Err("No resource options allowed without a <role> being specified"),
        [] => Ok(()),
        [_] if line.has("--all-tables") && !named("--keyspace") => {
            Err("--all-tables option should be passed along with --keyspace option")
        }
        [_] if named("--table") && !named("--keyspace") => {
            Err("--table option should be passed along with --keyspace option")
        }
        [_] if named("--function") && !named("--functions-in-keyspace") => {
            Err("--function option should be passed along with --functions-in-keyspace option")
        }
        [_] if !has_resource => Err("No resource options specified"),
        [_] => Ok(()),
        _ => Err("A single <role> is only supported / you have a typo in the resource options \
                  spelling"),
    }
}

fn permissions(line: &Line) -> Result<String, Failure> {
    check(line).map_err(|words| bad(words.to_owned()))?;
    asked(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_permissions_are_checked_as_cassandras_tool_does() {
        let of = |text: &str| {
            let line = format!("invalidatepermissionscache {text}");
            let words = line.split_whitespace().map(str::to_owned).collect();
            check(&Line::parse(words).unwrap()).err().unwrap_or("")
        };
        let typo = "A single <role> is only supported / you have a typo in the resource options \
                    spelling";
        for (text, expected) in [
            ("", ""),
            ("--all-keyspaces", "No resource options allowed without a <role> being specified"),
            ("--function f", "No resource options allowed without a <role> being specified"),
            ("me", "No resource options specified"),
            ("me --keyspace ks", ""),
            ("me --keyspace ks --table t", ""),
            ("me --table t", "--table option should be passed along with --keyspace option"),
            (
                "me --all-tables",
                "--all-tables option should be passed along with --keyspace option",
            ),
            (
                "me --function f",
                "--function option should be passed along with --functions-in-keyspace option",
            ),
            ("me --all-roles --mbean m", ""),
            ("me you --all-roles", typo),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
