//! `helenus doctor --security`: the CIS benchmark for Cassandra, as far as it applies to a node of Helenus.
//!
//! Owns: gathering of facts ([`facts`]: configuration, files, a running node), the items ([`items`], pure), the report
//! and the exit code. Never: changes anything.

mod facts;
mod items;

use clap::Args;
use tool_io::api_flags::ApiFlags;

use crate::exit;
use facts::{ApiPlace, Facts};
use items::{Finding, State, findings};

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Check against the CIS benchmark for Cassandra (needed: no other check exists). Exit code 0: no item failed,
    /// 1: some failed, 2: the configuration cannot be read
    #[arg(long)]
    security: bool,
    /// Configuration of the node; else the variables of the environment that the server reads
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    #[command(flatten)]
    api: ApiPlace,
    #[command(flatten)]
    login: ApiFlags,
}

/// Runs the checks; the exit code: 0 none failed, 1 some failed, 2 the configuration cannot be read.
pub fn main(options: &Doctor) -> u8 {
    let Doctor { security, config, api, login } = options;
    if !security {
        complain_line!("helenus doctor: --security is required (it is the only check)");
        return exit::USAGE;
    }
    let facts = match Facts::gather(config.as_deref(), api, login) {
        Ok(facts) => facts,
        Err(text) => {
            complain_line!("helenus doctor: {text}");
            return exit::USAGE;
        }
    };
    let findings = findings(&facts);
    say!("{}", report(&findings));
    match findings.iter().any(|finding| finding.state == State::Fail) {
        true => exit::FAILED,
        false => exit::OK,
    }
}

/// One line for each item, then the counts.
fn report(findings: &[Finding]) -> String {
    let mut out = String::new();
    for Finding { number, title, state, detail, remedy } in findings {
        out.push_str(&format!("{number:<5} {:<7} {title}: {detail}", state.word()));
        if !remedy.is_empty() {
            out.push_str(&format!("; {remedy}"));
        }
        out.push('\n');
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    out.push_str(&format!(
        "{} passed, {} failed, {} to review, {} unknown\n",
        count(State::Pass),
        count(State::Fail),
        count(State::Review),
        count(State::Unknown)
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_one_line_with_number_state_and_remedy() {
        let finding = |number, state, remedy| Finding {
            number,
            title: "a title",
            state,
            detail: "a detail".to_owned(),
            remedy,
        };
        let text = report(&[
            finding("2.1", State::Fail, "set \"authenticator\""),
            finding("5.2", State::Pass, ""),
        ]);
        assert_eq!(
            text,
            "2.1   FAIL    a title: a detail; set \"authenticator\"\n\
             5.2   PASS    a title: a detail\n\
             1 passed, 1 failed, 0 to review, 0 unknown\n"
        );
    }
}
