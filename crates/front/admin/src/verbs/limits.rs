//! Verbs about hints, streams and timeouts: limits that are shown and set, until the node stops.

use super::cluster::{bad, number, report, tell};
use super::line::{Failure, Line, Outcome};
use super::node::node;
use crate::model::{ClusterCommand, StreamingReport};
use crate::nodetool::{self as layout, ThroughputUnit};

/// `statushandoff`.
pub(super) fn handoff_status(line: &Line) -> Outcome {
    layout::status_handoff(report(&line.api)?.hints.as_ref()).map_err(Failure::Node)
}

/// `getmaxhintwindow`.
pub(super) fn hint_window(line: &Line) -> Outcome {
    layout::max_hint_window(report(&line.api)?.hints.as_ref()).map_err(Failure::Node)
}

/// `setmaxhintwindow`.
pub(super) fn set_hint_window(line: &Line) -> Outcome {
    let millis = number(&line.first(), "max_hint_window")?;
    tell(&line.api, &ClusterCommand::SetHintWindow { millis })
}

/// `sethintedhandoffthrottlekb`.
pub(super) fn set_hint_throttle(line: &Line) -> Outcome {
    let kib_per_second = number(&line.first(), "throttle_in_kb")?;
    tell(&line.api, &ClusterCommand::SetHintThrottle { kib_per_second })
}

/// `listpendinghints`.
pub(super) fn pending_hints(line: &Line) -> Outcome {
    let (node, cluster) = (node(&line.api)?, report(&line.api)?);
    layout::pending_hints(&node, cluster.hints.as_ref()).map_err(Failure::Node)
}

/// `enablehintsfordc`.
pub(super) fn enable_hints_for_dc(line: &Line) -> Outcome {
    tell(&line.api, &hints_for_dc(line, true)?)
}

/// `disablehintsfordc`.
pub(super) fn disable_hints_for_dc(line: &Line) -> Outcome {
    tell(&line.api, &hints_for_dc(line, false)?)
}

fn hints_for_dc(line: &Line, enabled: bool) -> Result<ClusterCommand, Failure> {
    let [datacenter] = line.arguments.as_slice() else {
        return Err(bad(format!("{} requires exactly one data center", line.verb)));
    };
    Ok(ClusterCommand::SetHintsForDatacenter { datacenter: datacenter.clone(), enabled })
}

/// The text of a throughput in a unit.
type ThroughputText = fn(Option<&StreamingReport>, ThroughputUnit) -> Result<String, String>;

/// `getstreamthroughput`.
pub(super) fn stream_throughput(line: &Line) -> Outcome {
    show_throughput(line, layout::stream_throughput)
}

/// `getinterdcstreamthroughput`.
pub(super) fn inter_dc_stream_throughput(line: &Line) -> Outcome {
    show_throughput(line, layout::inter_dc_stream_throughput)
}

fn show_throughput(line: &Line, show: ThroughputText) -> Outcome {
    let unit = match (line.has("--mib"), line.has("--precise-mbit")) {
        (true, true) => {
            let text = "You cannot use more than one flag with this command";
            return Err(Failure::BadUse(text.to_owned()));
        }
        (true, false) => ThroughputUnit::MebibytesPerSecond,
        (false, true) => ThroughputUnit::PreciseMegabits,
        (false, false) => ThroughputUnit::Megabits,
    };
    show(report(&line.api)?.streaming.as_ref(), unit).map_err(Failure::Node)
}

/// `setstreamthroughput`.
pub(super) fn set_stream_throughput(line: &Line) -> Outcome {
    let bytes_per_second = throughput(line, "stream_throughput")?;
    tell(&line.api, &ClusterCommand::SetStreamThroughput { bytes_per_second })
}

/// `setinterdcstreamthroughput`.
pub(super) fn set_inter_dc_stream_throughput(line: &Line) -> Outcome {
    let bytes_per_second = throughput(line, "inter_dc_stream_throughput")?;
    tell(&line.api, &ClusterCommand::SetInterDcStreamThroughput { bytes_per_second })
}

/// Bytes per second, from megabits or MiB.
fn throughput(line: &Line, title: &str) -> Result<u64, Failure> {
    let text = line.arguments.first().map_or("", String::as_str);
    let value: i32 =
        text.parse().map_err(|_| bad(format!("{title}: can not convert \"{text}\" to a int")))?;
    let value = u64::try_from(value)
        .map_err(|_| bad("Invalid data rate: value must be non-negative".to_owned()))?;
    Ok(value.saturating_mul(if line.has("--mib") { 1 << 20 } else { 1_000_000 / 8 }))
}

/// `gettimeout`.
pub(super) fn timeout(line: &Line) -> Outcome {
    match line.arguments.as_slice() {
        [kind] => layout::get_timeout(&report(&line.api)?, kind).map_err(Failure::BadUse),
        _ => Err(Failure::BadUse(format!(
            "gettimeout requires a timeout type, one of ({})",
            crate::commands::TIMEOUTS_TEXT
        ))),
    }
}

/// `settimeout`.
pub(super) fn set_timeout(line: &Line) -> Outcome {
    let [kind, millis] = line.arguments.as_slice() else {
        return Err(bad(format!(
            "Timeout type followed by value in ms (0 disables socket streaming timeout). Type \
             should be one of ({})",
            crate::commands::TIMEOUTS_TEXT
        )));
    };
    let millis = match millis.parse::<i64>() {
        Ok(millis) => {
            u64::try_from(millis).map_err(|_| bad("timeout must be non-negative".to_owned()))?
        }
        Err(_) => return Err(bad(format!("For input string: \"{millis}\""))),
    };
    tell(&line.api, &ClusterCommand::SetTimeout { kind: kind.clone(), millis })
}

#[cfg(test)]
mod tests {
    use super::super::tests::sent;
    use super::*;

    /// The command that a line gives.
    fn ask(text: &str) -> Result<ClusterCommand, String> {
        match sent(text) {
            Ok(sent) => Ok(serde_json::from_slice(&sent.last().unwrap().body).unwrap()),
            Err(Failure::BadUse(text)) => Err(text),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn units_are_those_of_the_tool() {
        let stream = |text| match ask(text) {
            Ok(ClusterCommand::SetStreamThroughput { bytes_per_second }) => bytes_per_second,
            other => panic!("{other:?}"),
        };
        assert_eq!(stream("setstreamthroughput 200"), 25_000_000);
        assert_eq!(stream("setstreamthroughput -m 24"), 24 << 20);
        let far = ask("setinterdcstreamthroughput -m 3").unwrap();
        let bytes_per_second = 3 << 20;
        assert_eq!(far, ClusterCommand::SetInterDcStreamThroughput { bytes_per_second });
        let backups = ask("enablebackup").unwrap();
        assert_eq!(backups, ClusterCommand::SetIncrementalBackups { enabled: true });
        let window = ask("setmaxhintwindow 5000").unwrap();
        assert_eq!(window, ClusterCommand::SetHintWindow { millis: 5000 });
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let refused = [
            ("setstreamthroughput x", "stream_throughput: can not convert \"x\" to a int"),
            ("setstreamthroughput -1", "Invalid data rate: value must be non-negative"),
            ("setmaxhintwindow x", "max_hint_window: can not convert \"x\" to a Integer"),
            ("setmaxhintwindow -- -1", "max_hint_window must be non-negative"),
            ("settimeout read x", "For input string: \"x\""),
            ("settimeout read -- -1", "timeout must be non-negative"),
            ("enablehintsfordc", "enablehintsfordc requires exactly one data center"),
        ];
        for (text, expected) in refused {
            assert_eq!(ask(text).unwrap_err(), expected, "{text}");
        }
        assert!(ask("settimeout read").unwrap_err().starts_with("Timeout type followed by value"));
    }
}
