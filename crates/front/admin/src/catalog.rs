//! Both tables of administration together: what verbs of nodetool need and do, by the requests that they send, and
//! the page of the documents that lists them.
//!
//! Owns: no row. The rules which role may do what are derived from here.

use crate::operation::{Call, Class, CommandRow, Scope};
use crate::server::{ROUTES, Route, SCYLLA};
use crate::verbs::{REFUSED, VERBS, Verb};

/// Returns the route of a request, and the row of its command if the path has several.
pub fn find(call: &Call) -> Option<(&'static Route, Option<&'static CommandRow>)> {
    let same = |route: &&Route| route.method == call.method && route.path == call.path;
    let route = ROUTES.iter().chain(SCYLLA).find(same)?;
    let command = route.commands.iter().find(|row| row.name == call.command);
    (command.is_some() || (call.command.is_empty() && route.commands.is_empty()))
        .then_some((route, command))
}

/// Returns the class that a verb needs: the highest of its requests.
pub fn class_of(verb: &Verb) -> Class {
    let class = |(route, command): (&Route, Option<&CommandRow>)| {
        command.map_or(route.class, |command| command.class)
    };
    verb.calls.iter().filter_map(find).map(class).max().unwrap_or(Class::Reads)
}

/// Returns the scope of a verb: the widest of the requests that need what the verb needs.
pub fn scope_of(verb: &Verb) -> Scope {
    let class = class_of(verb);
    let rows = verb.calls.iter().filter_map(find).map(|(route, command)| match command {
        Some(command) => (command.class, command.scope),
        None => (route.class, route.scope),
    });
    rows.filter(|row| row.0 == class).map(|row| row.1).max().unwrap_or(Scope::Node)
}

/// `docs/user/api.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "<!-- Generated from the tables of verbs and routes in crates/front/admin: run cargo xtask reference. -->\n\n\
         # The API\n\n\
         What nodetool does goes through HTTP: each of its commands is one or a few of these requests. Paths below\n\
         `/api/v1/` are version 1: fields are added to them, and none is renamed or removed. [nodetool.md](nodetool.md#the-api)\n\
         says how to connect and which errors there are.\n\n\
         *Needs*: `nothing` needs no login; `reads` changes nothing; `changes` changes settings, files or the schedule, and no\n\
         data is lost; `destroys` removes data, snapshots, hints or a member, or ends the service of the node. Where\n\
         [logins](security.md#the-api) are needed, the scope read-only is for `reads`, the scope operator for all, also\n\
         for paths that do not exist. *Where*: every `shard` of the node, the `node` itself, or the `cluster`, where others take\n\
         part.\n\n\
         ## Requests\n\n| request | needs | where | body or query, and what it does |\n| --- | --- | --- | --- |\n",
    );
    for route in ROUTES {
        let also: String = route.also.iter().map(|path| format!(", `{path}`")).collect();
        let (class, scope) = (route.class.name(), route.scope.name());
        let help = route.help.replace('\n', " ").replace('|', "\\|");
        let request = format!("`{} {}`{also}", route.method, route.path);
        out.push_str(&format!("| {request} | {class} | {scope} | {} |\n", quoted(&help)));
    }
    for route in ROUTES.iter().filter(|route| !route.commands.is_empty()) {
        out.push_str(&format!(
            "\n### Commands of `{} {}`\n\n| `command` | needs | where |\n| --- | --- | --- |\n",
            route.method, route.path
        ));
        for row in route.commands {
            let (class, scope) = (row.class.name(), row.scope.name());
            out.push_str(&format!("| `{}` | {class} | {scope} |\n", row.name));
        }
    }
    out.push_str(
        "\n## Commands of nodetool\n\n| command | needs | where | requests | in ScyllaDB's API |\n\
         | --- | --- | --- | --- | --- |\n",
    );
    for verb in VERBS {
        let names: Vec<String> =
            [verb.name].iter().chain(verb.aliases).map(|name| format!("`{name}`")).collect();
        let calls: Vec<String> = verb.calls.iter().map(shown).collect();
        let scylla: Vec<String> = verb.scylla.iter().map(|path| format!("`{path}`")).collect();
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            names.join(", "),
            class_of(verb).name(),
            scope_of(verb).name(),
            calls.join(", "),
            scylla.join(", ")
        ));
    }
    out.push_str(
        "\n## Paths of ScyllaDB's API\n\n| request | needs | where |\n| --- | --- | --- |\n",
    );
    for route in SCYLLA {
        let (class, scope) = (route.class.name(), route.scope.name());
        out.push_str(&format!("| `{} {}` | {class} | {scope} |\n", route.method, route.path));
    }
    out
}

/// The table of refused verbs in `docs/user/nodetool.md`: each reason, and what to use instead.
pub fn refused_markdown() -> String {
    let mut out = String::from("| command | why | instead |\n| --- | --- | --- |\n");
    for (name, reason) in REFUSED {
        let (why, instead) = reason.split_once(". ").unwrap_or((reason, ""));
        out.push_str(&format!("| `{name}` | {why} | {instead} |\n"));
    }
    out
}

fn shown(call: &Call) -> String {
    match call.command {
        "" => format!("`{} {}`", call.method, call.path),
        command => format!("`{} {}` `{command}`", call.method, call.path),
    }
}

/// JSON as code.
fn quoted(help: &str) -> String {
    match (help.starts_with('{'), help.rfind('}')) {
        (true, Some(end)) => {
            let (json, rest) = help.split_at(end + 1);
            format!("`{json}`{rest}")
        }
        _ => help.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{ClusterCommand, CompactionCommand};

    #[test]
    fn requests_of_verbs_are_routes() {
        for verb in VERBS {
            for call in verb.calls {
                assert!(find(call).is_some(), "{}: {call:?}", verb.name);
            }
            for path in verb.scylla {
                let known = SCYLLA
                    .iter()
                    .any(|r| r.paths().any(|known| format!("{} {known}", r.method) == *path));
                assert!(known, "{}: {path}", verb.name);
            }
        }
    }

    #[test]
    fn routes_are_unique_and_said_in_the_list() {
        let mut seen = BTreeSet::new();
        for route in ROUTES.iter().chain(SCYLLA) {
            for path in route.paths() {
                assert!(seen.insert((route.method, path)), "{} {path}", route.method);
            }
            for row in route.commands {
                assert!(row.class <= route.class && row.scope <= route.scope, "{row:?}");
                assert!(route.help.contains(row.name), "{row:?}");
            }
        }
        for route in ROUTES {
            assert!(!route.help.is_empty(), "{}", route.path);
            assert!(route.path.starts_with("/api/v1/") || route.path == "/", "{}", route.path);
        }
    }

    #[test]
    fn names_of_commands_are_those_of_their_json() {
        let cluster = ClusterCommand::PauseHints { paused: true };
        let json = serde_json::to_value(&cluster).unwrap();
        assert_eq!(json["command"], cluster.row().name);
        // A name that the enum does not know is refused as such; one without its fields otherwise.
        let unknown = |error: serde_json::Error| error.to_string().contains("unknown variant");
        for row in ClusterCommand::ROWS {
            let text = format!(r#"{{"command":"{}","nosuch":1}}"#, row.name);
            let read = serde_json::from_str::<ClusterCommand>(&text);
            assert!(!unknown(read.unwrap_err()), "{}", row.name);
        }
        for row in CompactionCommand::ROWS {
            let text = format!(r#"{{"command":"{}","keyspaces":1}}"#, row.name);
            let read = serde_json::from_str::<CompactionCommand>(&text);
            assert!(!unknown(read.unwrap_err()), "{}", row.name);
        }
    }

    #[test]
    fn a_verb_needs_what_its_requests_need() {
        let of = |name| {
            let verb = crate::verbs::verb(name).unwrap();
            (class_of(verb), scope_of(verb))
        };
        assert_eq!(of("status"), (Class::Reads, Scope::Node));
        assert_eq!(of("decommission"), (Class::Destroys, Scope::Cluster));
        assert_eq!(of("flush"), (Class::Changes, Scope::Shard));
        assert_eq!(of("enablegossip"), (Class::Changes, Scope::Node));
        assert_eq!(of("scrub"), (Class::Destroys, Scope::Shard));
        assert_eq!(of("clearsnapshot"), (Class::Destroys, Scope::Node));
        assert_eq!(of("help"), (Class::Reads, Scope::Node));
    }

    /// `cargo xtask reference` sets `UPDATE_EXPECT`.
    fn check(page: &str, expected: impl Fn(&str) -> String) {
        let path = format!("{}/../../../docs/user/{page}", env!("CARGO_MANIFEST_DIR"));
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let expected = expected(&found);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &expected).unwrap();
        } else {
            assert!(
                found == expected,
                "docs/user/{page} is out of date: run cargo xtask reference"
            );
        }
    }

    #[test]
    fn the_page_of_the_api_is_up_to_date() {
        check("api.md", |_| markdown());
    }

    #[test]
    fn the_page_of_nodetool_has_the_refused_verbs_and_names_all_others() {
        let (begin, end) = ("<!-- generated: refused verbs -->\n", "<!-- end of generated -->");
        check("nodetool.md", |page| {
            let (head, rest) = page.split_once(begin).expect("the mark of the generated table");
            let (_, tail) = rest.split_once(end).expect("the end of the generated table");
            format!("{head}{begin}\n{}\n{end}{tail}", refused_markdown())
        });
        let page = include_str!("../../../../docs/user/nodetool.md");
        for verb in VERBS.iter().filter(|verb| verb.name != "help") {
            // `enable`/`disable`/`status` + `gossip`, …
            let is_switch = ["enable", "disable", "status"].iter().any(|word| {
                let rest = verb.name.strip_prefix(word);
                rest.is_some_and(|rest| !rest.is_empty() && page.contains(&format!("`{rest}`")))
            });
            let named =
                |name: &str| [" ", "`"].iter().any(|end| page.contains(&format!("`{name}{end}")));
            assert!(is_switch || named(verb.name), "docs/user/nodetool.md: {}", verb.name);
        }
    }
}
