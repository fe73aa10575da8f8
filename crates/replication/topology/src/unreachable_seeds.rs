//! Seeds that no waiting reaches: addresses of this machine where no node is.
//!
//! Owns: the decision and its text. Never: asks a seed.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use messaging::OpenError;
use stdx::{Instant, IoErrorKind};

use crate::seeds::Answer;

/// How long seeds on loopback addresses may refuse connections. Nodes of one machine that are started together listen
/// within it; another machine may boot, so that its refusals prove nothing.
const REFUSED_MAX: Duration = Duration::from_secs(10);

/// Returns true if all seeds are loopback addresses, where no other machine ever answers, while
/// this node has an address for others: `seeds` was left at its default.
pub(crate) fn is_out_of_reach(own: IpAddr, others: &[SocketAddr]) -> bool {
    !own.is_loopback() && others.iter().all(|seed| seed.ip().is_loopback())
}

fn named(others: &[SocketAddr]) -> String {
    others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn out_of_reach(own: IpAddr, others: &[SocketAddr]) -> String {
    format!(
        "\"seeds\" names only {}, where no node answers, but this node's address is {own}: set seeds to \
         \"{own}\" to found a cluster, or to the address of a member to join one",
        named(others)
    )
}

/// The error after [`SeedRefusals::are_final`].
pub(crate) fn nobody_listens(own: SocketAddr, others: &[SocketAddr]) -> String {
    let seconds = REFUSED_MAX.as_secs();
    format!(
        "\"seeds\" names only {}, where no process listens (connections were refused for {seconds} s), and this \
         node's address is {own}: set seeds to \"{own}\" to found a cluster, or start the node of the seed first \
         to join its cluster",
        named(others)
    )
}

/// Time since which all seeds have refused connections.
#[derive(Debug, Default)]
pub(crate) struct SeedRefusals {
    since: Option<Instant>,
}

impl SeedRefusals {
    /// Returns true if the answers show that waiting is useless: every seed is a loopback address,
    /// and in every round of the last [`REFUSED_MAX`] the machine refused the connection, so no
    /// process listens there.
    pub(crate) fn are_final(&mut self, answers: &[Answer], now: Instant) -> bool {
        let is_refused = |(address, answer): &Answer| {
            let refused =
                matches!(answer, Err(OpenError::Io(error)) if error.kind == IoErrorKind::Refused);
            address.ip().is_loopback() && refused
        };
        if answers.is_empty() || !answers.iter().all(is_refused) {
            self.since = None;
            return false;
        }
        now.since(*self.since.get_or_insert(now)) >= REFUSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::IoError;

    fn seeds(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|s| s.parse().unwrap()).collect()
    }

    #[test]
    fn seeds_on_loopback_are_out_of_reach_of_a_node_with_an_address_for_others() {
        let check = |own: &str, all: &[&str], expected: bool| {
            assert_eq!(
                is_out_of_reach(own.parse().unwrap(), &seeds(all)),
                expected,
                "{own} {all:?}"
            );
        };
        check("10.0.0.5", &["127.0.0.1:7000"], true);
        check("10.0.0.5", &["127.0.0.1:7000", "[::1]:7000"], true);
        check("10.0.0.5", &["127.0.0.1:7000", "10.0.0.6:7000"], false);
        check("127.0.0.2", &["127.0.0.1:7000"], false);
        let text = out_of_reach("10.0.0.5".parse().unwrap(), &seeds(&["127.0.0.1:7000"]));
        assert!(
            text.contains("names only 127.0.0.1:7000")
                && text.contains("set seeds to \"10.0.0.5\"")
        );
    }

    #[test]
    fn refusals_of_this_machine_end_the_wait_and_silence_and_other_machines_do_not() {
        let answer = |address: &str, kind: Option<IoErrorKind>| -> Answer {
            let error = match kind {
                Some(kind) => OpenError::Io(IoError {
                    kind,
                    operation: "connect",
                    path: address.to_owned(),
                    detail: String::new(),
                }),
                None => OpenError::Timeout,
            };
            (address.parse().unwrap(), Err(error))
        };
        let refused = |address| answer(address, Some(IoErrorKind::Refused));
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        let local = || vec![refused("127.0.0.1:7000"), refused("[::1]:7000")];
        let mut refusals = SeedRefusals::default();
        assert!(!refusals.are_final(&local(), at(1)));
        assert!(!refusals.are_final(&local(), at(10)));
        // A process listens there by now and has not answered yet.
        assert!(!refusals.are_final(&[answer("127.0.0.1:7000", None)], at(10)));
        assert!(!refusals.are_final(&local(), at(12)));
        assert!(!refusals.are_final(&local(), at(21)));
        assert!(refusals.are_final(&local(), at(22)));
        for others in [
            vec![refused("10.0.0.1:7000")],
            vec![refused("127.0.0.1:7000"), refused("10.0.0.1:7000")],
            vec![refused("127.0.0.1:7000"), answer("127.0.0.3:7000", None)],
            vec![],
        ] {
            let mut refusals = SeedRefusals::default();
            assert!(!refusals.are_final(&others, at(0)) && !refusals.are_final(&others, at(59)));
        }
        let own = "127.0.0.2:7000".parse().unwrap();
        let text = nobody_listens(own, &seeds(&["127.0.0.1:7000"]));
        assert!(text.contains("names only 127.0.0.1:7000, where no process listens"), "{text}");
        assert!(text.contains("set seeds to \"127.0.0.2:7000\" to found"), "{text}");
    }
}
