//! `invalidaterolescache` and similar commands, `getauthcacheconfig` and `setauthcacheconfig`.
//!
//! Roles and permissions are not cached: every node has them in its metadata, and a change counts from the next
//! statement on. So invalidating them has nothing to do, and their entries are valid for no time. Verified passwords
//! are cached.

use super::cluster::bad;
use super::line::{Failure, Line, Outcome};
use super::node::asked;
use super::settings::{int, set, settings};

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

/// Checks the line; errors have the texts of Cassandra's tool.
fn check(line: &Line) -> Result<(), &'static str> {
    // An empty name is none.
    let named = |name: &str| line.value(name).is_some_and(|value| !value.is_empty());
    let given = |name: &str| if name.starts_with("--all") { line.has(name) } else { named(name) };
    // Ignored without a role, as in Cassandra: --all-tables.
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

/// `invalidatepermissionscache`.
pub(super) fn permissions(line: &Line) -> Outcome {
    check(line).map_err(|words| bad(words.to_owned()))?;
    asked(line)
}

/// Passwords that were verified.
const CREDENTIALS: &str = "CredentialsCache";
/// Caches that do not exist here.
const UNCACHED: [&str; 3] = ["PermissionsCache", "RolesCache", "NetworkPermissionsCache"];

/// The cache that a line names.
fn cache_name(line: &Line) -> Result<&str, Failure> {
    match line.value("--cache-name") {
        None => Err(bad("Required option '--cache-name' is missing".to_owned())),
        Some(CREDENTIALS) => Ok(CREDENTIALS),
        Some(name) if UNCACHED.contains(&name) => Ok(name),
        Some(name) => Err(bad(format!("Unknown cache name: {name}"))),
    }
}

/// `getauthcacheconfig`.
pub(super) fn config(line: &Line) -> Outcome {
    let name = cache_name(line)?;
    let settings = settings(&line.api)?;
    let (validity, entries) = match name {
        CREDENTIALS => {
            (settings.credentials_validity_millis, settings.credentials_cache_max_entries)
        }
        _ => (0, 0),
    };
    Ok(cache_config(validity, entries))
}

/// Entries are never read again before they expire, which Cassandra shows as an interval of that length.
fn cache_config(validity: u64, entries: u64) -> String {
    format!(
        "Validity Period: {validity}\nUpdate Interval: {validity}\nMax Entries: {entries}\nActive Update: false\n"
    )
}

/// Values of a command line, after the checks of Cassandra's tool: validity in milliseconds, entries.
fn wanted(line: &Line) -> Result<(Option<u64>, Option<u64>), Failure> {
    let name = cache_name(line)?;
    let number = |option: &str| {
        let title = option.trim_start_matches('-');
        line.value(option).map(|text| int(text, title)).transpose()
    };
    let validity = number("--validity-period")?;
    let interval = number("--update-interval")?;
    let entries = number("--max-entries")?;
    let (on, off) = (line.has("--enable-active-update"), line.has("--disable-active-update"));
    if validity.is_none() && interval.is_none() && entries.is_none() && !on && !off {
        return Err(bad("At least one optional parameter need to be passed".to_owned()));
    }
    if on && off {
        let text = "enable-active-update and disable-active-update cannot be used together";
        return Err(bad(text.to_owned()));
    }
    if name != CREDENTIALS {
        return Err(bad(format!(
            "{name} cannot be configured: roles and permissions are not cached, a change counts from the next \
             statement on; only CredentialsCache remembers something"
        )));
    }
    if on || interval.is_some() {
        let text = "CredentialsCache has no update interval: an entry is not read again, and does not count any \
                    more when its password changes; set --validity-period";
        return Err(bad(text.to_owned()));
    }
    let positive = |number: Option<i32>, text: &str| {
        number.map(|n| u64::try_from(n).map_err(|_| bad(text.to_owned()))).transpose()
    };
    Ok((
        positive(validity, "Invalid duration: value must be non-negative")?,
        positive(entries, "max-entries must be non-negative")?,
    ))
}

/// `setauthcacheconfig`.
pub(super) fn set_config(line: &Line) -> Outcome {
    let (validity, entries) = wanted(line)?;
    let mut out = String::new();
    if let Some(validity) = validity {
        set(&line.api, "credentials_validity", &validity.to_string())?;
        out.push_str(&format!("Changed Validity Period to {validity}\n"));
    }
    if let Some(entries) = entries {
        set(&line.api, "credentials_cache_max_entries", &entries.to_string())?;
        out.push_str(&format!("Changed Max Entries to {entries}\n"));
    }
    if line.has("--disable-active-update") {
        out.push_str("Changed Active Update to false\n");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;
    use super::*;

    #[test]
    fn resources_of_permissions_are_checked_as_cassandras_tool_does() {
        let of = |text: &str| {
            let line = format!("invalidatepermissionscache {text}");
            check(&parse(&line).unwrap()).err().unwrap_or("")
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

    /// Texts of Cassandra 5.0.9, except for caches that do not exist here.
    #[test]
    fn caches_are_configured_as_far_as_there_are_some() {
        let refused = |text: &str| {
            let line = parse(&format!("setauthcacheconfig {text}")).unwrap();
            match wanted(&line) {
                Err(Failure::BadUse(text)) => text,
                other => panic!("{text}: {other:?}"),
            }
        };
        let of = |options: &str| refused(&format!("--cache-name CredentialsCache {options}"));
        assert_eq!(refused("--max-entries 5"), "Required option '--cache-name' is missing");
        assert_eq!(refused("--cache-name x"), "Unknown cache name: x");
        assert_eq!(of(""), "At least one optional parameter need to be passed");
        assert_eq!(
            of("--enable-active-update --disable-active-update"),
            "enable-active-update and disable-active-update cannot be used together"
        );
        assert_eq!(
            of("--validity-period x"),
            "validity-period: can not convert \"x\" to a Integer"
        );
        assert_eq!(of("--validity-period -1"), "Invalid duration: value must be non-negative");
        assert!(of("--update-interval 5").contains("no update interval"));
        let of_roles = refused("--cache-name RolesCache --validity-period 5");
        assert!(of_roles.contains("roles and permissions are not cached"), "{of_roles}");
        let text = "setauthcacheconfig --cache-name CredentialsCache --validity-period 3000 --max-entries 7";
        let line = parse(text).unwrap();
        assert_eq!(wanted(&line).unwrap(), (Some(3000), Some(7)));
        assert_eq!(
            cache_config(2000, 1000),
            "Validity Period: 2000\nUpdate Interval: 2000\nMax Entries: 1000\nActive Update: false\n"
        );
    }
}
