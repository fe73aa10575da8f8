package suite

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
)

func TestConnectsAndReadsSystemLocal(t *testing.T) {
	var key, release, cql, partitioner, cluster string
	scan(t, session.Query("SELECT key, release_version, cql_version, partitioner, cluster_name "+
		"FROM system.local"), &key, &release, &cql, &partitioner, &cluster)
	equal(t, []string{key, release, cql, partitioner},
		[]string{"local", "5.0.9", "3.4.7", "org.apache.cassandra.dht.Murmur3Partitioner"})
	if cluster == "" {
		t.Fatal("the cluster has no name")
	}
	hosts := session.GetHosts()
	if len(hosts) != 1 || !hosts[0].IsUp() || len(hosts[0].Tokens()) == 0 ||
		hosts[0].HostID() == "" || hosts[0].DataCenter() == "" {
		t.Fatalf("hosts %v", hosts)
	}
}

func TestEveryProtocolVersionAndCompression(t *testing.T) {
	execute(t, "CREATE TABLE packed (k int PRIMARY KEY, v blob)")
	noise := make([]byte, 400_000)
	rand.New(rand.NewSource(7)).Read(noise)
	values := [][]byte{{}, bytes.Repeat([]byte("x"), 100), bytes.Repeat([]byte("x"), 300_000), noise}
	for _, each := range []struct {
		name       string
		version    int
		compressor gocql.Compressor
	}{
		{"v3", 3, nil}, {"v4", 4, nil}, {"v5", 5, nil},
		{"v4 lz4", 4, lz4.LZ4Compressor{}}, {"v5 lz4", 5, lz4.LZ4Compressor{}},
		{"v3 snappy", 3, snappy.SnappyCompressor{}}, {"v4 snappy", 4, snappy.SnappyCompressor{}},
	} {
		t.Run(each.name, func(t *testing.T) {
			other := connect(t, func(cluster *gocql.ClusterConfig) {
				cluster.ProtoVersion = each.version
				cluster.Compressor = each.compressor
			})
			for key, value := range values {
				insert := "INSERT INTO packed (k, v) VALUES (?, ?)"
				if err := other.Query(insert, key, value).Exec(); err != nil {
					t.Fatal(err)
				}
				var read []byte
				scan(t, other.Query("SELECT v FROM packed WHERE k = ?", key), &read)
				if !bytes.Equal(read, value) {
					t.Fatalf("%d bytes differ", len(value))
				}
			}
		})
	}
}

func TestAKeyspaceThatIsNotThereIsRefused(t *testing.T) {
	cluster := configuration()
	cluster.Keyspace = "no_such_keyspace_at_all"
	if other, err := cluster.CreateSession(); err == nil {
		other.Close()
		t.Fatal("connected")
	}
}

// metadataWhere waits until the driver's copy of the schema, which follows the server's events about
// a second later, is as `right` wants it.
func metadataWhere(t *testing.T, right func(*gocql.KeyspaceMetadata) bool) *gocql.KeyspaceMetadata {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		metadata, err := session.KeyspaceMetadata(keyspace)
		if err != nil {
			t.Fatal(err)
		}
		if right(metadata) {
			return metadata
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metadata stays %v", metadata.Tables)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestSchemaMetadata(t *testing.T) {
	execute(t, "CREATE TYPE inner_t (x int, y text)")
	execute(t, "CREATE TABLE meta (a int, b text, c timestamp, d uuid, s int static, v list<int>, "+
		"m map<text, frozen<set<int>>>, u frozen<inner_t>, PRIMARY KEY ((a, b), c, d)) "+
		"WITH CLUSTERING ORDER BY (c DESC, d ASC)")
	metadata := metadataWhere(t, func(metadata *gocql.KeyspaceMetadata) bool {
		return metadata.Tables["meta"] != nil && metadata.UserTypes["inner_t"] != nil
	})
	equal(t, metadata.DurableWrites, true)
	equal(t, metadata.StrategyClass, "org.apache.cassandra.locator.SimpleStrategy")
	table := metadata.Tables["meta"]
	names := func(columns []*gocql.ColumnMetadata) (out []string) {
		for _, column := range columns {
			out = append(out, column.Name)
		}
		return out
	}
	equal(t, names(table.PartitionKey), []string{"a", "b"})
	equal(t, names(table.ClusteringColumns), []string{"c", "d"})
	equal(t, table.ClusteringColumns[0].Order, gocql.DESC)
	equal(t, table.ClusteringColumns[1].Order, gocql.ASC)
	equal(t, table.Columns["s"].Kind, gocql.ColumnStatic)
	equal(t, table.Columns["v"].Kind, gocql.ColumnRegular)
	equal(t, table.Columns["v"].Type.Type(), gocql.TypeList)
	equal(t, table.Columns["m"].Type.Type(), gocql.TypeMap)
	equal(t, metadata.UserTypes["inner_t"].FieldNames, []string{"x", "y"})
}

// The driver's own metadata has no indexes.
func TestIndexesAreInTheSchemaTables(t *testing.T) {
	execute(t, "CREATE TABLE indexed (k int PRIMARY KEY, v int, m map<text, int>)")
	execute(t, "CREATE INDEX ON indexed (v)")
	execute(t, "CREATE INDEX indexed_m ON indexed (entries(m)) USING 'sai'")
	indexes := func() (out []string) {
		rows := session.Query("SELECT index_name, kind, options FROM system_schema.indexes "+
			"WHERE keyspace_name = ? AND table_name = 'indexed'", keyspace).Iter()
		var name, kind string
		var options map[string]string
		for rows.Scan(&name, &kind, &options) {
			out = append(out, fmt.Sprint(name, " ", kind, " ", options))
			options = nil
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	legacy := "indexed_v_idx COMPOSITES map[target:v]"
	equal(t, indexes(), []string{"indexed_m CUSTOM map[class_name:sai target:entries(m)]", legacy})
	metadataWhere(t, func(metadata *gocql.KeyspaceMetadata) bool {
		return metadata.Tables["indexed"] != nil
	})
	execute(t, "DROP INDEX indexed_m")
	equal(t, indexes(), []string{legacy})
}

func TestSchemaMetadataFollowsEvents(t *testing.T) {
	columns := func(count int) func(*gocql.KeyspaceMetadata) bool {
		return func(metadata *gocql.KeyspaceMetadata) bool {
			table := metadata.Tables["evolving"]
			return table == nil && count == 0 || table != nil && len(table.Columns) == count
		}
	}
	execute(t, "CREATE TABLE evolving (k int PRIMARY KEY, a int)")
	metadataWhere(t, columns(2))
	execute(t, "ALTER TABLE evolving ADD b text")
	metadataWhere(t, columns(3))
	execute(t, "DROP TABLE evolving")
	metadataWhere(t, columns(0))
}

type traced struct{ ids [][]byte }

func (tracer *traced) Trace(id []byte) { tracer.ids = append(tracer.ids, id) }

func TestTracingGivesAnId(t *testing.T) {
	tracer := &traced{}
	var key string
	scan(t, session.Query("SELECT key FROM system.local").Trace(tracer), &key)
	// One of EXECUTE, and one of PREPARE where it was needed.
	if len(tracer.ids) == 0 || len(tracer.ids[0]) != 16 {
		t.Fatalf("ids %v", tracer.ids)
	}
}
