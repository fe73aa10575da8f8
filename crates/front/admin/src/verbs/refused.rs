//! Commands of Cassandra 5.0 that nothing here could carry out: each with its reason, and what serves its purpose.
//!
//! Owns: these texts. A command that Cassandra has is either in the table of commands or here.

/// Names in order, with what follows "… is not supported: ".
pub const REFUSED: &[(&str, &str)] = &[
    (
        "gcstats",
        "there is no Java virtual machine and no garbage collector. info prints the memory; proxyhistograms and the \
         metrics at /metrics have the latencies that pauses would show in",
    ),
    (
        "getconcurrency",
        "shards have no thread pools: each is one thread that carries out all stages. tpstats prints the tasks of \
         each stage, and the setting \"smp\" is the number of threads",
    ),
    (
        "getconcurrentviewbuilders",
        "there are no materialized views yet, so none are built. Write a second table with a logged batch",
    ),
    (
        "invalidatejmxpermissionscache",
        "there is no JMX, and permissions for the API are not cached. A change of roles or permissions counts at once",
    ),
    (
        "reloadlocalschema",
        "the schema is the metadata log, which every node replays at its start and follows; its tables hold a copy. \
         describecluster shows the schema version of every node; restart a node whose version stays behind",
    ),
    (
        "reloadtriggers",
        "there are no triggers yet, so no classes to load. Write what a trigger would write in the same batch",
    ),
    (
        "resetlocalschema",
        "the schema is the metadata log, the same on all nodes: a node cannot have one of its own. describecluster \
         shows the schema version of every node; a node that lacks entries fetches them from its peers",
    ),
    (
        "setconcurrency",
        "shards have no thread pools to resize: each is one thread that carries out all stages. \"smp\" is the \
         number of threads, after a restart; native_transport_max_concurrent_requests_per_connection bounds clients",
    ),
    (
        "setconcurrentviewbuilders",
        "there are no materialized views yet, so there is nothing to build at a time",
    ),
    (
        "sjk",
        "there is no Java virtual machine that it could inspect. The numbers of MBeans are metrics at /metrics; perf \
         and gdb work on the process, whose threads have the names of shards",
    ),
    (
        "viewbuildstatus",
        "there are no materialized views yet, so none has a status. Write a second table with a logged batch",
    ),
];

/// Why a command of Cassandra's does not exist, and what to use instead.
pub fn refused(name: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(refused, _)| *refused == name).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::super::table::verb;
    use super::*;

    /// Commands that `nodetool help` of Cassandra 5.0.9 lists.
    const CASSANDRAS: &str = "assassinate autorepairstatus bootstrap checktokenmetadata cidrfilteringstats cleanup clearsnapshot \
    clientstats compact compactionhistory compactionstats datapaths decommission describecluster \
    describering disableauditlog disableautocompaction disablebackup disablebinary disablefullquerylog \
    disablegossip disablehandoff disablehintsfordc disableoldprotocolversions drain dropcidrgroup \
    enableauditlog enableautocompaction enablebackup enablebinary enablefullquerylog enablegossip \
    enablehandoff enablehintsfordc enableoldprotocolversions failuredetector flush forcecompact \
    garbagecollect gcstats getauditlog getauthcacheconfig getautorepairconfig getbatchlogreplaythrottle \
    getcidrgroupsofip getcolumnindexsize getcompactionthreshold getcompactionthroughput getconcurrency \
    getconcurrentcompactors getconcurrentviewbuilders getdefaultrf getendpoints getfullquerylog \
    getguardrailsconfig getinterdcstreamthroughput getlogginglevels getmaxhintwindow getseeds \
    getsnapshotthrottle getsstables getstreamthroughput gettimeout gettraceprobability gossipinfo help \
    import info invalidatecidrpermissionscache invalidatecountercache invalidatecredentialscache \
    invalidatejmxpermissionscache invalidatekeycache invalidatenetworkpermissionscache \
    invalidatepermissionscache invalidaterolescache invalidaterowcache join listcidrgroups \
    listpendinghints listsnapshots move netstats pausehandoff profileload proxyhistograms rangekeysample \
    rebuild rebuild_index recompress_sstables refresh refreshsizeestimates reloadcidrgroupscache \
    reloadlocalschema reloadseeds reloadssl reloadtriggers relocatesstables removenode repair \
    repair_admin replaybatchlog resetfullquerylog resetlocalschema resumehandoff ring scrub \
    setauthcacheconfig setautorepairconfig setbatchlogreplaythrottle setcachecapacity setcachekeystosave \
    setcolumnindexsize setcompactionthreshold setcompactionthroughput setconcurrency \
    setconcurrentcompactors setconcurrentviewbuilders setdefaultrf setguardrailsconfig \
    sethintedhandoffthrottlekb setinterdcstreamthroughput setlogginglevel setmaxhintwindow \
    setsnapshotthrottle setstreamthroughput settimeout settraceprobability sjk snapshot \
    sstablerepairedset status statusautocompaction statusbackup statusbinary statusgossip statushandoff \
    stop stopdaemon tablehistograms tablestats toppartitions tpstats truncatehints updatecidrgroup \
    upgradesstables verify version viewbuildstatus";

    #[test]
    fn every_command_of_cassandra_is_carried_out_or_refused_for_a_reason_of_its_own() {
        for name in CASSANDRAS.split_whitespace().filter(|name| *name != "help") {
            assert_ne!(verb(name).is_some(), refused(name).is_some(), "{name}");
        }
        let mut reasons: Vec<&str> = REFUSED.iter().map(|(_, why)| *why).collect();
        assert!(REFUSED.is_sorted_by(|a, b| a.0 < b.0));
        assert!(REFUSED.iter().all(|(name, _)| CASSANDRAS.split_whitespace().any(|n| n == *name)));
        reasons.sort_unstable();
        reasons.dedup();
        assert_eq!(reasons.len(), REFUSED.len());
    }
}
