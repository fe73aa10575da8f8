"""What sstabledump and `helenus sstable dump` print of all files of some keyspaces."""

from servers import CassandraFiles, sstable_tool, sstables


def dumps(report, home, keyspaces, part):
    cassandra = CassandraFiles(home)
    for keyspace in keyspaces:
        for table, file in sstables(home, keyspace):
            out, status, errors = cassandra.tool("SSTableExport", str(file))
            ours = sstable_tool("dump", str(file))[0]
            same = status == 0 and out.strip() == ours.strip()
            report.check(f"{part}: sstabledump {keyspace}.{table}/{file.name}", "" if same else f"{errors}{out}\n{ours}")
    cassandra.end_tools()
