//! Logs broken invariants that failed a request (`stdx::bug!`), each site at most once a minute.

use std::time::Duration;

use rt::{Gate, Group, Rt};
use stdx::invariant::bug_reports;
use stdx::{BugReport, FixedMap};

/// Between two checks.
const PERIOD: Duration = Duration::from_secs(60);

/// Logs them in the background. On shard 0 only: the counts are the process's.
pub(crate) fn log_bugs(rt: &Rt, gate: &Gate) {
    let own = rt.clone();
    let task = async move {
        let total = own.telemetry().counter(
            "internal_errors_total",
            "Requests that failed because an invariant of this program was broken.",
            &[],
        );
        let mut logged = FixedMap::default();
        let mut next = own.now() + PERIOD;
        while own.timeout(next, own.stop_requested()).await.is_err() {
            for (report, times) in news(&mut logged, bug_reports()) {
                total.add(times);
                let site = report.latest.site;
                tracing::error!(times, site, "{}; please report it with this line", report.latest);
            }
            next = own.now() + PERIOD;
        }
    };
    // A closed gate: the node stops.
    let _ = gate.spawn(rt, Group::Admin, "bug-log", task);
}

/// Those that fired since they were logged, with how often.
fn news(
    logged: &mut FixedMap<&'static str, u64>,
    reports: Vec<BugReport>,
) -> Vec<(BugReport, u64)> {
    let mut news = Vec::new();
    for report in reports {
        let before = logged.insert(report.latest.site, report.count).unwrap_or(0);
        if report.count > before {
            let times = report.count - before;
            news.push((report, times));
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use stdx::Bug;

    use super::*;

    #[test]
    fn a_bug_is_logged_when_it_fired_again() {
        let report = |site, count| {
            let latest = Bug { site, what: "x".to_owned() };
            BugReport { latest, count }
        };
        let mut logged = FixedMap::default();
        let times = |news: Vec<(BugReport, u64)>| news.into_iter().map(|n| n.1).collect::<Vec<_>>();
        assert_eq!(times(news(&mut logged, vec![report("a", 3)])), [3]);
        assert_eq!(times(news(&mut logged, vec![report("a", 3), report("b", 1)])), [1]);
        assert_eq!(times(news(&mut logged, vec![report("a", 5), report("b", 1)])), [2]);
    }
}
