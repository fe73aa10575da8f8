use super::*;

fn watch(rails: Guardrails) -> Watch {
    Watch::new(Arc::new(rails))
}

/// `ok`, `warn` or `fail`, and the last text.
fn came_of(watch: &Watch, checked: Checked) -> (&'static str, String) {
    let last = watch.warnings().pop().unwrap_or_default();
    match checked {
        Ok(()) if last.is_empty() => ("ok", last),
        Ok(()) => ("warn", last),
        Err(error) => {
            assert_eq!(error.message, last, "a refusal is among the warnings");
            ("fail", last)
        }
    }
}

#[test]
fn a_limit_is_reached_beyond_it_and_below_one_is_none() {
    let of = |warn, fail, rows| {
        let rails = Guardrails { page_size: Threshold { warn, fail }, ..Guardrails::default() };
        let watch = watch(rails);
        let checked = watch.page_size("t", rows);
        came_of(&watch, checked)
    };
    let warned = "Guardrail page_size violated: Query for table t with page size 11 exceeds \
                  warning threshold of 10.";
    let refused = "Guardrail page_size violated: Aborting query for table t, page size 21 exceeds \
                   fail threshold of 20.";
    assert_eq!(of(10, 20, 10).0, "ok");
    assert_eq!(of(10, 20, 11), ("warn", warned.to_owned()));
    assert_eq!(of(10, 20, 20).0, "warn");
    assert_eq!(of(10, 20, 21), ("fail", refused.to_owned()));
    assert_eq!(of(-1, 20, 20).0, "ok");
    assert_eq!(of(10, -1, u32::MAX).0, "warn");
    assert_eq!(of(0, -1, u32::MAX).0, "ok");
}

#[test]
fn a_least_factor_is_missed_below_it() {
    let of = |minimum: (i64, i64), maximum: (i64, i64), factor| {
        let rails = Guardrails {
            minimum_replication_factor: Threshold { warn: minimum.0, fail: minimum.1 },
            maximum_replication_factor: Threshold { warn: maximum.0, fail: maximum.1 },
            ..Guardrails::default()
        };
        let watch = watch(rails);
        let checked = watch.replication_factor("ks", factor);
        came_of(&watch, checked)
    };
    assert_eq!(of((3, 2), (-1, -1), 3).0, "ok");
    assert_eq!(of((3, 2), (-1, -1), 2).0, "warn");
    let text = "Guardrail minimum_replication_factor violated: The keyspace ks has a replication \
                factor of 1, below the failure threshold of 2.";
    assert_eq!(of((3, 2), (-1, -1), 1), ("fail", text.to_owned()));
    let text = "Guardrail maximum_replication_factor violated: The keyspace ks has a replication \
                factor of 4, above the warning threshold of 3.";
    assert_eq!(of((-1, -1), (3, 5), 4), ("warn", text.to_owned()));
}

#[test]
fn a_feature_is_refused_or_warned_of_with_its_reason() {
    let rails = Guardrails { allow_filtering: Feature::of(false), ..Guardrails::default() };
    let watch = watch(rails);
    let text = "Guardrail allow_filtering violated: Querying with ALLOW FILTERING is not allowed. \
                ALLOW FILTERING can potentially visit all the data in the table and have \
                unpredictable performance.";
    assert_eq!(came_of(&watch, watch.allow_filtering()), ("fail", text.to_owned()));
    let off = Feature::of(false);
    let rails = Guardrails { non_partition_restricted_index_query: off, ..Guardrails::default() };
    let indexes = self::watch(rails);
    let text = "Guardrail non_partition_restricted_index_query_enabled violated: Non-partition key \
                restricted query is not allowed. Executing a query on secondary indexes without \
                partition key restriction might degrade performance";
    let refused = indexes.non_partition_restricted_index_query();
    assert_eq!(came_of(&indexes, refused), ("fail", text.to_owned()));
    watch.forget(0);
    let (kind, text) = came_of(&watch, watch.zero_ttl_on_twcs());
    let begin = "Guardrail zero_ttl_on_twcs violated: 0 default_time_to_live on a table with \
                 TimeWindowCompactionStrategy compaction strategy is not recommended. It is \
                 suspicious";
    assert!(kind == "warn" && text.starts_with(begin) && text.ends_with("will not do it. "));
}

#[test]
fn values_are_refused_left_out_and_warned_of() {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    let rails = Guardrails {
        table_properties: Values {
            warned: names(&["comment"]),
            ignored: names(&["cdc", "caching"]),
            disallowed: names(&["id"]),
        },
        ..Guardrails::default()
    };
    let watch = watch(rails);
    assert_eq!(watch.table_properties(&["gc_grace_seconds"]), Ok(Vec::new()));
    assert_eq!(watch.count(), 0);
    assert_eq!(watch.table_properties(&["comment", "cdc", "caching"]), Ok(vec!["caching", "cdc"]));
    assert_eq!(
        watch.warnings(),
        [
            "Guardrail table_properties violated: Ignoring provided values [caching, cdc] as they \
             are not supported for Table Properties (ignored values are: [cdc, caching])",
            "Guardrail table_properties violated: Provided values [comment] are not recommended \
             for Table Properties (warned values are: [comment])",
        ]
    );
    let refused = watch.table_properties(&["id", "comment"]).unwrap_err();
    let text = "Guardrail table_properties violated: Provided values [id] are not allowed for \
                Table Properties (disallowed values are: [id])";
    assert_eq!((refused.message.as_str(), watch.count()), (text, 3));
}

#[test]
fn full_disks_refuse_and_stuffed_ones_warn_but_not_at_every_write() {
    let of = |pressure, notice| {
        let watch = watch(Guardrails::default());
        let error = watch.replica_disk(pressure, notice).map_err(|error| error.message).err();
        (error, watch.warnings(), watch.has_refused())
    };
    let warned = "Guardrail replica_disk_usage violated: Replica disk usage exceeds warning \
                  threshold"
        .to_owned();
    let refused = "Guardrail replica_disk_usage violated: Write request failed because disk usage \
                   exceeds failure threshold"
        .to_owned();
    assert_eq!(of(DiskPressure::Stuffed, Notice::Given), (None, vec![warned], false));
    assert_eq!(of(DiskPressure::Stuffed, Notice::Withheld), (None, vec![], false));
    let told = vec![refused.clone()];
    assert_eq!(of(DiskPressure::Full, Notice::Given), (Some(refused.clone()), told, true));
    assert_eq!(of(DiskPressure::Full, Notice::Withheld), (Some(refused), vec![], true));
}
