package suite;

import static suite.Main.await;
import static suite.Main.builder;
import static suite.Main.check;
import static suite.Main.connect;
import static suite.Main.define;
import static suite.Main.equal;
import static suite.Main.keyspace;
import static suite.Main.one;
import static suite.Main.session;

import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.InvalidKeyspaceException;
import com.datastax.oss.driver.api.core.Version;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.Node;
import com.datastax.oss.driver.api.core.metadata.NodeState;
import com.datastax.oss.driver.api.core.metadata.TokenMap;
import com.datastax.oss.driver.api.core.metadata.schema.ClusteringOrder;
import com.datastax.oss.driver.api.core.metadata.schema.ColumnMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.IndexKind;
import com.datastax.oss.driver.api.core.metadata.schema.IndexMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.KeyspaceMetadata;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import suite.Main.Test;

/** Connecting, protocol versions and compression, the metadata of the schema, tracing. */
final class Connection {
  private Connection() {}

  @Test
  static void connectsAndReadsSystemLocal() {
    var row = one(define("SELECT key, release_version, cql_version, partitioner FROM system.local"));
    equal(row.getString("key"), "local");
    equal(row.getString("release_version"), "5.0.9");
    equal(row.getString("cql_version"), "3.4.7");
    equal(row.getString("partitioner"), "org.apache.cassandra.dht.Murmur3Partitioner");
  }

  @Test
  static void clusterHasOneNodeAndTokens() {
    Map<?, Node> nodes = session.getMetadata().getNodes();
    equal(nodes.size(), 1);
    Node node = nodes.values().iterator().next();
    equal(node.getState(), NodeState.UP);
    equal(node.getCassandraVersion(), Version.parse("5.0.9"));
    check(node.getDatacenter() != null && node.getRack() != null, node);
    check(node.getHostId() != null && node.getSchemaVersion() != null, node);
    TokenMap tokens = session.getMetadata().getTokenMap().orElseThrow();
    equal(tokens.getPartitionerName(), "org.apache.cassandra.dht.Murmur3Partitioner");
    check(!tokens.getTokenRanges().isEmpty(), tokens);
    equal(tokens.getReplicas(keyspace, ByteBuffer.wrap(new byte[] {0, 0, 0, 1})).size(), 1);
  }

  @Test
  static void everyProtocolVersionAndCompression() {
    define("CREATE TABLE packed (k int PRIMARY KEY, v blob)");
    byte[] same = new byte[300_000];
    byte[] noise = new byte[400_000];
    Arrays.fill(same, (byte) 'x');
    new Random(7).nextBytes(noise);
    List<byte[]> values = List.of(new byte[0], new byte[100], same, noise);
    for (String version : List.of("V3", "V4", "V5")) {
      for (String compression : List.of("none", "lz4", "snappy")) {
        if (version.equals("V5") && compression.equals("snappy")) {
          continue; // v5 has only LZ4
        }
        try (CqlSession other =
            connect(
                options ->
                    options
                        .withString(DefaultDriverOption.PROTOCOL_VERSION, version)
                        .withString(DefaultDriverOption.PROTOCOL_COMPRESSION, compression))) {
          equal(other.getContext().getProtocolVersion().name(), version);
          PreparedStatement insert = other.prepare("INSERT INTO packed (k, v) VALUES (?, ?)");
          PreparedStatement select = other.prepare("SELECT v FROM packed WHERE k = ?");
          for (int key = 0; key < values.size(); key++) {
            ByteBuffer value = ByteBuffer.wrap(values.get(key));
            other.execute(insert.bind(key, value));
            check(
                value.equals(one(other.execute(select.bind(key))).getByteBuffer(0)),
                version + " " + compression + ", " + value.remaining() + " bytes");
          }
        }
      }
    }
  }

  @Test
  static void negotiatesTheNewestVersionByDefault() {
    equal(session.getContext().getProtocolVersion().name(), "V5");
  }

  @Test
  static void aKeyspaceThatIsNotThereIsRefused() {
    try (CqlSession other = builder(o -> {}).withKeyspace("no_such_keyspace_at_all").build()) {
      throw new AssertionError("connected: " + other);
    } catch (InvalidKeyspaceException expected) {
      check(expected.getMessage().contains("no_such_keyspace_at_all"), expected);
    }
  }

  private static KeyspaceMetadata metadata() {
    return session.refreshSchema().getKeyspace(keyspace).orElseThrow();
  }

  private static List<String> names(Iterable<ColumnMetadata> columns) {
    List<String> names = new java.util.ArrayList<>();
    columns.forEach(column -> names.add(column.getName().asInternal()));
    return names;
  }

  @Test
  static void schemaMetadataOfATableIsComplete() {
    define(
        "CREATE TABLE meta (a int, b text, c timestamp, d uuid, s int static, v list<int>, "
            + "m map<text, frozen<set<int>>>, PRIMARY KEY ((a, b), c, d)) "
            + "WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'a comment' "
            + "AND gc_grace_seconds = 1234 AND default_time_to_live = 77");
    KeyspaceMetadata metadata = metadata();
    equal(metadata.isDurableWrites(), true);
    equal(
        metadata.getReplication(),
        Map.of("class", "org.apache.cassandra.locator.SimpleStrategy", "replication_factor", "1"));
    TableMetadata table = metadata.getTable("meta").orElseThrow();
    equal(names(table.getPartitionKey()), List.of("a", "b"));
    equal(names(table.getClusteringColumns().keySet()), List.of("c", "d"));
    equal(
        List.copyOf(table.getClusteringColumns().values()),
        List.of(ClusteringOrder.DESC, ClusteringOrder.ASC));
    check(table.getColumn("s").orElseThrow().isStatic(), table);
    equal(table.getColumn("v").orElseThrow().getType(), DataTypes.listOf(DataTypes.INT));
    equal(
        table.getColumn("m").orElseThrow().getType(),
        DataTypes.mapOf(DataTypes.TEXT, DataTypes.frozenSetOf(DataTypes.INT)));
    Map<CqlIdentifier, Object> options = table.getOptions();
    equal(options.get(CqlIdentifier.fromInternal("comment")), "a comment");
    equal(options.get(CqlIdentifier.fromInternal("gc_grace_seconds")), 1234);
    equal(options.get(CqlIdentifier.fromInternal("default_time_to_live")), 77);
    equal(
        ((Map<?, ?>) options.get(CqlIdentifier.fromInternal("compression"))).get("class"),
        "org.apache.cassandra.io.compress.LZ4Compressor");
  }

  @Test
  static void createStatementOfTheDriverRecreatesTheTable() {
    define("CREATE TABLE again (k int, c text, v frozen<map<int, text>>, PRIMARY KEY (k, c))");
    String cql = metadata().getTable("again").orElseThrow().describe(false);
    define("DROP TABLE again");
    define(cql);
    equal(metadata().getTable("again").orElseThrow().describe(false), cql);
  }

  @Test
  static void schemaMetadataOfUserTypes() {
    define("CREATE TYPE inner_t (x int, y text)");
    define("CREATE TYPE outer_t (i frozen<inner_t>, l list<frozen<inner_t>>)");
    UserDefinedType type = metadata().getUserDefinedType("outer_t").orElseThrow();
    equal(type.getFieldNames().toString(), "[i, l]");
    UserDefinedType inner = (UserDefinedType) type.getFieldTypes().get(0);
    equal(inner.getName().asInternal(), "inner_t");
    equal(inner.getFieldTypes(), List.of(DataTypes.INT, DataTypes.TEXT));
  }

  @Test
  static void schemaMetadataOfIndexes() {
    define("CREATE TABLE indexed (k int PRIMARY KEY, v int, m map<text, int>)");
    define("CREATE INDEX ON indexed (v)");
    define("CREATE INDEX indexed_m ON indexed (entries(m)) USING 'sai'");
    TableMetadata table = metadata().getTable("indexed").orElseThrow();
    equal(table.getIndexes().size(), 2);
    IndexMetadata legacy = table.getIndex("indexed_v_idx").orElseThrow();
    equal(legacy.getKind(), IndexKind.COMPOSITES);
    equal(legacy.getTarget(), "v");
    check(legacy.getClassName().isEmpty(), legacy.getClassName());
    IndexMetadata attached = table.getIndex("indexed_m").orElseThrow();
    equal(attached.getKind(), IndexKind.CUSTOM);
    equal(attached.getTarget(), "entries(m)");
    equal(attached.getClassName().orElseThrow(), "sai");
    define("DROP INDEX indexed_m");
    Map<CqlIdentifier, IndexMetadata> left = metadata().getTable("indexed").orElseThrow().getIndexes();
    equal(left.keySet(), Set.of(CqlIdentifier.fromInternal("indexed_v_idx")));
  }

  @Test
  static void aSecondSessionHearsOfChanges() throws InterruptedException {
    try (CqlSession other = connect(options -> {})) {
      java.util.function.IntSupplier columns =
          () ->
              other
                  .getMetadata()
                  .getKeyspace(keyspace)
                  .flatMap(meta -> meta.getTable("evolving"))
                  .map(table -> table.getColumns().size())
                  .orElse(0);
      define("CREATE TABLE evolving (k int PRIMARY KEY, a int)");
      await("created", () -> columns.getAsInt() == 2);
      define("ALTER TABLE evolving ADD b text");
      await("altered", () -> columns.getAsInt() == 3);
      define("DROP TABLE evolving");
      await("dropped", () -> columns.getAsInt() == 0);
    }
  }

  @Test
  static void schemaAgreementIsReached() {
    check(session.checkSchemaAgreement(), "no agreement");
    check(define("CREATE TABLE agreed (k int PRIMARY KEY)").getExecutionInfo()
        .isSchemaInAgreement(), "no agreement");
  }

  @Test
  static void systemTablesAreInTheMetadata() {
    // The driver leaves the system keyspaces out by default.
    try (CqlSession other =
        connect(
            options ->
                options.withStringList(
                    DefaultDriverOption.METADATA_SCHEMA_REFRESHED_KEYSPACES, List.of("system")))) {
      var tables = other.getMetadata().getKeyspace("system").orElseThrow().getTables();
      for (String name : List.of("local", "peers", "peers_v2", "size_estimates")) {
        check(tables.containsKey(CqlIdentifier.fromInternal(name)), name);
      }
    }
  }

  @Test
  static void tracingGivesEvents() {
    var statement = SimpleStatement.newInstance("SELECT key FROM system.local").setTracing(true);
    QueryTrace trace = session.execute(statement).getExecutionInfo().getQueryTrace();
    check(trace.getRequestType() != null && !trace.getEvents().isEmpty(), trace);
    check(trace.getCoordinatorAddress() != null, trace);
  }

  @Test
  static void theConnectionIsUsableAfterErrors() {
    for (int i = 0; i < 50; i++) {
      try {
        define("SELECT * FROM nosuch");
        throw new AssertionError("not refused");
      } catch (DriverException expected) {
        check(expected.getMessage().contains("nosuch"), expected);
      }
    }
    equal(one(define("SELECT key FROM system.local")).getString(0), "local");
  }
}
