//! The help of nodetool, from the table of verbs.

use super::command::{Flag, Verb};
use super::flags::GLOBAL;
use super::refused::{REFUSED, refused};
use super::table::{VERBS, verb};

/// The list of verbs, or the help of one.
pub fn help(name: Option<&str>) -> String {
    let Some(name) = name else { return list() };
    match (verb(name), refused(name)) {
        (Some(verb), _) => of_verb(verb),
        (None, Some(why)) => format!("{name} is not supported: {why}\n\n"),
        (None, None) => format!("Unknown command {name}\n\n"),
    }
}

fn list() -> String {
    let mut out = String::from(
        "usage: helenus nodetool [(-p <port> | --port <port>)] [(-pp | --print-port)]\n        \
         [(-h <host> | --host <host>)] [-u <role> -pw <password> | --token-file <file>] [--ssl]\n        \
         <command> [<args>]\n\nThe nodetool commands are:\n",
    );
    for verb in VERBS {
        out.push_str(&format!("    {:<34}{}\n", verb.name, verb.help));
    }
    out.push_str(
        "\nOf Cassandra's commands these are refused; 'nodetool help <command>' says why:\n",
    );
    for (name, _) in REFUSED {
        out.push_str(&format!("    {name}\n"));
    }
    out.push_str("\nSee 'nodetool help <command>' for more information on a specific command.\n");
    out
}

/// An option as it is written, once for each of its names.
fn written(flag: &Flag) -> Vec<String> {
    let value = flag.value.map(|v| format!(" <{v}>")).unwrap_or_default();
    flag.names.iter().map(|n| format!("{n}{value}")).collect()
}

fn of_verb(verb: &Verb) -> String {
    let mut out = format!("NAME\n        nodetool {} - {}\n\nSYNOPSIS\n", verb.name, verb.help);
    out.push_str("        nodetool [(-h <host> | --host <host>)] [(-p <port> | --port <port>)]\n");
    out.push_str(&format!("                [(-pp | --print-port)] {}", verb.name));
    for flag in verb.flags {
        match written(flag).as_slice() {
            [one] => out.push_str(&format!(" [{one}]")),
            many => out.push_str(&format!(" [({})]", many.join(" | "))),
        }
    }
    if !verb.arguments.is_empty() {
        out.push_str(&format!("\n                [--] {}", verb.arguments));
    }
    out.push_str("\n\nOPTIONS\n");
    for flag in GLOBAL.iter().chain(verb.flags) {
        let names = written(flag).join(", ");
        out.push_str(&format!("        {names}\n            {}\n\n", flag.help));
    }
    if !verb.arguments.is_empty() {
        out.push_str(&format!(
            "        {}\n            {}\n\n",
            verb.arguments, verb.arguments_help
        ));
    }
    out
}
