package suite;

import static suite.Main.check;
import static suite.Main.connect;
import static suite.Main.define;
import static suite.Main.equal;
import static suite.Main.execute;
import static suite.Main.keyspace;
import static suite.Main.one;
import static suite.Main.session;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DriverException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.token.Token;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidConfigurationInQueryException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import suite.Main.Test;

/** Statements, prepared and not, paging, batches, errors, concurrent load. */
final class Statements {
  private Statements() {}

  private static List<Integer> ints(ResultSet result) {
    List<Integer> out = new ArrayList<>();
    result.forEach(row -> out.add(row.getInt(0)));
    return out;
  }

  @Test
  static void insertSelectUpdateDeleteTruncate() {
    define("CREATE TABLE crud (k int, c int, a text, b int, PRIMARY KEY (k, c))");
    execute("INSERT INTO crud (k, c, a, b) VALUES (?, ?, ?, ?)", 1, 1, "one", 10);
    define("INSERT INTO crud (k, c, a) VALUES (1, 2, 'two')");
    execute("UPDATE crud SET b = ? WHERE k = ? AND c = ?", 20, 1, 2);
    equal(ints(define("SELECT b FROM crud WHERE k = 1")), List.of(10, 20));
    execute("DELETE b FROM crud WHERE k = ? AND c = ?", 1, 2);
    execute("DELETE FROM crud WHERE k = ? AND c = ?", 1, 1);
    Row row = one(define("SELECT * FROM crud"));
    equal(row.getString("a"), "two");
    check(row.isNull("b"), row);
    define("TRUNCATE crud");
    equal(define("SELECT * FROM crud").all().size(), 0);
  }

  @Test
  static void simpleStatementsTakePositionalAndNamedValues() {
    define("CREATE TABLE simple (k int PRIMARY KEY, v text)");
    String insert = "INSERT INTO simple (k, v) VALUES ";
    session.execute(SimpleStatement.newInstance(insert + "(?, ?)", 1, "it's"));
    session.execute(SimpleStatement.newInstance(insert + "(:a, :b)", Map.of("a", 2, "b", "two")));
    equal(one(define("SELECT v FROM simple WHERE k = 1")).getString(0), "it's");
    equal(one(define("SELECT v FROM simple WHERE k = 2")).getString(0), "two");
  }

  @Test
  static void aPreparedStatementKnowsItsColumnsAndToken() {
    define("CREATE TABLE prep (k text, c text, v blob, PRIMARY KEY (k, c))");
    PreparedStatement insert = session.prepare("INSERT INTO prep (k, c, v) VALUES (?, ?, ?)");
    List<String> columns = new ArrayList<>();
    insert.getVariableDefinitions().forEach(c -> columns.add(c.getName() + " " + c.getType()));
    equal(columns, List.of("k TEXT", "c TEXT", "v BLOB"));
    equal(insert.getPartitionKeyIndices(), List.of(0));
    for (String key : List.of("a", "key-1", "a longer key, of more than 16 bytes", "Žluťoučký")) {
      var bound = insert.bind(key, "x", ByteBuffer.wrap(new byte[] {1}));
      session.execute(bound);
      Token token =
          session.getMetadata().getTokenMap().orElseThrow().newToken(bound.getRoutingKey());
      equal(one(execute("SELECT token(k) FROM prep WHERE k = ?", key)).getToken(0), token);
    }
  }

  @Test
  static void unsetValuesLeaveTheCellAloneAndNullDeletesIt() {
    define("CREATE TABLE unset (k int PRIMARY KEY, a int, b int)");
    PreparedStatement insert =
        session.prepare("INSERT INTO unset (k, a, b) VALUES (:key, :x, :y)");
    session.execute(insert.bind().setInt("key", 1).setInt("x", 10).setInt("y", 20));
    session.execute(insert.bind().setInt("key", 1).setInt("y", 30));
    Row row = one(define("SELECT * FROM unset"));
    equal(List.of(row.getInt("a"), row.getInt("b")), List.of(10, 30));
    session.execute(insert.bind().setInt("key", 1).setToNull("x"));
    row = one(define("SELECT * FROM unset"));
    check(row.isNull("a") && row.getInt("b") == 30, row);
  }

  @Test
  static void aPreparedSelectStarSurvivesAlterTable() {
    for (String version : List.of("V4", "V5")) {
      try (CqlSession other =
          connect(o -> o.withString(DefaultDriverOption.PROTOCOL_VERSION, version))) {
        String table = "altered_" + version;
        define("CREATE TABLE " + table + " (k int PRIMARY KEY, a int)");
        define("INSERT INTO " + table + " (k, a) VALUES (1, 2)");
        PreparedStatement select = other.prepare("SELECT * FROM " + table + " WHERE k = ?");
        equal(one(other.execute(select.bind(1))).getInt("a"), 2);
        define("ALTER TABLE " + table + " ADD b text");
        define("INSERT INTO " + table + " (k, a, b) VALUES (1, 3, 'x')");
        Row row = one(other.execute(select.bind(1)));
        equal(row.getInt("a"), 3);
        if (version.equals("V5")) { // v4 drivers keep the columns of PREPARE
          equal(row.getString("b"), "x");
        }
      }
    }
  }

  @Test
  static void clientTimestampsDecideWhichWriteWins() {
    define("CREATE TABLE stamped (k int PRIMARY KEY, v text)");
    PreparedStatement insert = session.prepare("INSERT INTO stamped (k, v) VALUES (1, ?)");
    session.execute(insert.bind("new").setQueryTimestamp(2000));
    session.execute(insert.bind("old").setQueryTimestamp(1000));
    Row row = one(define("SELECT v, writetime(v) AS w FROM stamped"));
    equal(row.getString("v"), "new");
    equal(row.getLong("w"), 2000L);
  }

  @Test
  static void timeToLiveIsReported() {
    define("CREATE TABLE ttls (k int PRIMARY KEY, v int)");
    execute("INSERT INTO ttls (k, v) VALUES (1, 1) USING TTL ?", 1000);
    int ttl = one(define("SELECT ttl(v) FROM ttls")).getInt(0);
    check(ttl > 900 && ttl <= 1000, ttl);
  }

  @Test
  static void aggregatesAndFunctions() {
    define("CREATE TABLE agg (k int, c int, v double, PRIMARY KEY (k, c))");
    for (int i = 0; i < 10; i++) {
      execute("INSERT INTO agg (k, c, v) VALUES (0, ?, ?)", i, i / 2.0);
    }
    Row row = one(define("SELECT count(*), min(v), max(v), sum(c), avg(v) FROM agg WHERE k = 0"));
    equal(row.getLong(0), 10L);
    equal(row.getDouble(1), 0.0);
    equal(row.getDouble(2), 4.5);
    equal(row.getInt(3), 45);
    equal(row.getDouble(4), 2.25);
  }

  private static void fill() {
    define("CREATE TABLE IF NOT EXISTS paged (k int, c int, v text, PRIMARY KEY (k, c))");
    PreparedStatement insert = session.prepare("INSERT INTO paged (k, c, v) VALUES (?, ?, ?)");
    List<CompletionStage<AsyncResultSet>> writes = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      writes.add(session.executeAsync(insert.bind(i / 40, i % 40, "v" + i / 40 + "-" + i % 40)));
    }
    writes.forEach(write -> write.toCompletableFuture().join());
  }

  @Test
  static void pagingReturnsEveryRowOnce() {
    fill();
    for (int size : new int[] {1, 7, 40, 199, 200, 5000}) {
      Set<String> seen = new HashSet<>();
      var statement = SimpleStatement.newInstance("SELECT k, c, v FROM paged").setPageSize(size);
      for (Row row : session.execute(statement)) {
        equal(row.getString("v"), "v" + row.getInt("k") + "-" + row.getInt("c"));
        check(seen.add(row.getString("v")), "twice: " + row.getString("v"));
      }
      equal(seen.size(), 200);
    }
  }

  @Test
  static void pagingInsideAPartitionInBothOrdersAndWithALimit() {
    fill();
    List<Integer> up = new ArrayList<>();
    List<Integer> down = new ArrayList<>();
    for (int i = 0; i < 40; i++) {
      up.add(i);
      down.add(0, i);
    }
    String select = "SELECT c FROM paged WHERE k = 3";
    equal(ints(paged(select, 7)), up);
    equal(ints(paged(select + " ORDER BY c DESC", 7)), down);
    equal(ints(paged(select + " LIMIT 23", 5)), up.subList(0, 23));
  }

  private static ResultSet paged(String cql, int size) {
    return session.execute(SimpleStatement.newInstance(cql).setPageSize(size));
  }

  @Test
  static void pagingStateCanBeCarriedToAnotherSession() {
    fill();
    String select = "SELECT c FROM paged WHERE k = 4";
    ResultSet first = paged(select, 15);
    equal(first.getAvailableWithoutFetching(), 15);
    ByteBuffer state = first.getExecutionInfo().getPagingState();
    try (CqlSession other = connect(options -> {})) {
      var statement = SimpleStatement.newInstance(select).setPageSize(100).setPagingState(state);
      ResultSet rest = other.execute(statement);
      check(rest.getExecutionInfo().getPagingState() == null, "more pages");
      List<Integer> found = ints(rest);
      equal(found.size(), 25);
      equal(List.of(found.get(0), found.get(24)), List.of(15, 39));
    }
  }

  @Test
  static void batchesApplyAllStatements() {
    define("CREATE TABLE batched (k int, c int, v text, PRIMARY KEY (k, c))");
    PreparedStatement insert = session.prepare("INSERT INTO batched (k, c, v) VALUES (?, ?, ?)");
    for (DefaultBatchType type : List.of(DefaultBatchType.LOGGED, DefaultBatchType.UNLOGGED)) {
      define("TRUNCATE batched");
      BatchStatementBuilder batch = BatchStatement.builder(type).setQueryTimestamp(5555);
      for (int i = 0; i < 20; i++) {
        batch.addStatement(insert.bind(i % 3, i, "p" + i));
      }
      batch.addStatement(
          SimpleStatement.newInstance("INSERT INTO batched (k, c, v) VALUES (?, ?, ?)", 9, 9, "s"));
      batch.addStatement(
          SimpleStatement.newInstance("DELETE FROM batched WHERE k = 0 AND c = 0"));
      session.execute(batch.build());
      List<Row> rows = define("SELECT k, c, writetime(v) FROM batched").all();
      equal(rows.size(), 20);
      check(rows.stream().allMatch(row -> row.getLong(2) == 5555), type);
      check(rows.stream().noneMatch(row -> row.getInt(0) == 0 && row.getInt(1) == 0), type);
    }
  }

  private static void refused(String cql, Class<? extends DriverException> kind, String part) {
    try {
      define(cql);
    } catch (DriverException error) {
      check(kind.isInstance(error) && error.getMessage().contains(part), cql + ": " + error);
      return;
    }
    throw new AssertionError(cql + ": not refused");
  }

  @Test
  static void errorsHaveCassandrasCodesAndTexts() {
    define("CREATE TABLE errs (k int, c int, v int, PRIMARY KEY (k, c))");
    Class<InvalidQueryException> invalid = InvalidQueryException.class;
    refused("SELEKT * FROM nothing", SyntaxError.class, "line 1:0");
    refused("SELECT * FROM nosuch", invalid, "table nosuch does not exist");
    refused("SELECT * FROM nokeyspace.t", invalid, "keyspace nokeyspace does not exist");
    refused("SELECT zzz FROM errs", invalid, "Undefined column name zzz");
    refused("SELECT * FROM errs WHERE v = 1", invalid, "use ALLOW FILTERING");
    refused("INSERT INTO errs (k, v) VALUES (1, 1)", invalid, "clustering keys are missing: c");
    refused("CREATE TABLE errs (k int PRIMARY KEY)", AlreadyExistsException.class, "errs");
    refused(
        "CREATE KEYSPACE badrep WITH replication = {'class': 'NoStrategy'}",
        InvalidConfigurationInQueryException.class,
        "NoStrategy");
  }

  @Test
  static void quorumOfThreeReplicasIsUnavailableOnOneNode() {
    String name = keyspace + "_rf3";
    define(
        "CREATE KEYSPACE " + name
            + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}");
    define("CREATE TABLE " + name + ".t (k int PRIMARY KEY)");
    var insert = SimpleStatement.newInstance("INSERT INTO " + name + ".t (k) VALUES (1)");
    Throwable error = null;
    try {
      session.execute(insert.setConsistencyLevel(DefaultConsistencyLevel.QUORUM));
    } catch (AllNodesFailedException all) {
      error = all.getAllErrors().values().iterator().next().get(0);
    } catch (UnavailableException one) {
      error = one;
    }
    check(
        error instanceof UnavailableException unavailable
            && unavailable.getRequired() == 2
            && unavailable.getAlive() == 1,
        error);
    session.execute(insert.setConsistencyLevel(DefaultConsistencyLevel.ONE));
    define("DROP KEYSPACE " + name);
  }

  @Test
  static void concurrentLoadReadsWhatItWrote() throws InterruptedException {
    define("CREATE TABLE load (k int PRIMARY KEY, v text, n bigint)");
    PreparedStatement insert = session.prepare("INSERT INTO load (k, v, n) VALUES (?, ?, ?)");
    PreparedStatement select = session.prepare("SELECT v, n FROM load WHERE k = ?");
    Semaphore slots = new Semaphore(128);
    List<CompletableFuture<Void>> all = new ArrayList<>();
    for (int i = 0; i < 3000; i++) {
      int key = i;
      slots.acquire();
      all.add(
          session
              .executeAsync(insert.bind(key, "value-" + key, (long) key * key))
              .thenCompose(written -> session.executeAsync(select.bind(key)))
              .thenAccept(
                  result -> {
                    Row row = result.one();
                    equal(row.getString(0), "value-" + key);
                    equal(row.getLong(1), (long) key * key);
                  })
              .whenComplete((nothing, error) -> slots.release())
              .toCompletableFuture());
    }
    all.forEach(CompletableFuture::join);
    equal(one(define("SELECT count(*) FROM load")).getLong(0), 3000L);
  }
}
