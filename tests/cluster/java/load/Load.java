package load;

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultConsistencyLevel;
import com.datastax.oss.driver.api.core.DriverTimeoutException;
import com.datastax.oss.driver.api.core.NodeUnavailableException;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.connection.BusyConnectionException;
import com.datastax.oss.driver.api.core.connection.ClosedConnectionException;
import com.datastax.oss.driver.api.core.connection.ConnectionInitException;
import com.datastax.oss.driver.api.core.connection.HeartbeatException;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.servererrors.BootstrappingException;
import com.datastax.oss.driver.api.core.servererrors.CASWriteUnknownException;
import com.datastax.oss.driver.api.core.servererrors.OverloadedException;
import com.datastax.oss.driver.api.core.servererrors.ReadFailureException;
import com.datastax.oss.driver.api.core.servererrors.ReadTimeoutException;
import com.datastax.oss.driver.api.core.servererrors.UnavailableException;
import com.datastax.oss.driver.api.core.servererrors.WriteFailureException;
import com.datastax.oss.driver.api.core.servererrors.WriteTimeoutException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.IntConsumer;

/**
 * The load of one driver while nodes fail: the Java driver. See ../../README.md, "Drivers under
 * faults".
 */
public final class Load {

  private static final String NAME = "java";
  private static final int WORKERS = 2;
  private static final int VERIFIERS = 8;
  private static final long PAUSE_MILLIS = 10;

  private static final List<Class<? extends Throwable>> EXPECTED =
      List.of(
          DriverTimeoutException.class,
          NodeUnavailableException.class,
          BusyConnectionException.class,
          ClosedConnectionException.class,
          ConnectionInitException.class,
          HeartbeatException.class,
          BootstrappingException.class,
          CASWriteUnknownException.class,
          OverloadedException.class,
          ReadFailureException.class,
          ReadTimeoutException.class,
          UnavailableException.class,
          WriteFailureException.class,
          WriteTimeoutException.class,
          IOException.class);

  // To see that it is found: some writes are claimed and not made. Of keys that nobody else uses.
  private static final boolean IS_LYING = System.getenv("LOAD_LIE") != null;
  private static final int FIRST_KEY = IS_LYING ? 1_000_000 : 0;

  private final CqlSession session;
  private final PreparedStatement insert;
  private final PreparedStatement select;
  private final PreparedStatement create;
  private final PreparedStatement cas;
  private final PreparedStatement serial;

  // Guarded by this.
  private final List<Integer> acknowledged = new ArrayList<>();
  private final Map<String, Integer> counts = new TreeMap<>();
  private final Map<String, Integer> errors = new TreeMap<>();
  private final List<String> wrong = new ArrayList<>();
  // Of the shared register.
  private int seen;
  private volatile boolean isStopping;

  private Load() {
    DriverConfigLoader options =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.HEARTBEAT_INTERVAL, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.HEARTBEAT_TIMEOUT, Duration.ofSeconds(5))
            .withDuration(DefaultDriverOption.RECONNECTION_BASE_DELAY, Duration.ofMillis(200))
            .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofSeconds(1))
            .withString(DefaultDriverOption.REQUEST_CONSISTENCY, "QUORUM")
            .withString(DefaultDriverOption.REQUEST_SERIAL_CONSISTENCY, "SERIAL")
            .build();
    var builder = CqlSession.builder().withConfigLoader(options);
    for (String host : System.getenv("LOAD_HOSTS").split(",")) {
      builder.addContactPoint(new InetSocketAddress(host, 9042));
    }
    session = builder.withLocalDatacenter("datacenter1").withKeyspace("faults").build();
    insert = session.prepare("INSERT INTO kv (driver, k, v) VALUES (?, ?, ?)");
    select = session.prepare("SELECT v FROM kv WHERE driver = ? AND k = ?");
    create = session.prepare("INSERT INTO register (k, v) VALUES (?, 0) IF NOT EXISTS");
    cas = session.prepare("UPDATE register SET v = ? WHERE k = ? IF v = ?");
    serial = session.prepare("SELECT v FROM register WHERE k = ?");
  }

  /** Whether an error is one that failing nodes explain: the outcome is not known. */
  private static boolean isExpected(Throwable error) {
    if (error instanceof AllNodesFailedException all) {
      return all.getAllErrors().values().stream()
          .allMatch(of -> of.stream().allMatch(Load::isExpected));
    }
    return EXPECTED.stream().anyMatch(kind -> kind.isInstance(error));
  }

  /** The first row, if any; null when nobody knows what happened. */
  private Optional<Row> execute(ConsistencyLevel level, PreparedStatement of, Object... values) {
    try {
      var statement = of.bind(values);
      if (level != null) {
        statement = statement.setConsistencyLevel(level);
      }
      return Optional.ofNullable(session.execute(statement).one());
    } catch (RuntimeException error) {
      synchronized (this) {
        errors.merge(error.getClass().getSimpleName(), 1, Integer::sum);
        if (!isExpected(error)) {
          wrong.add("unexpected: " + error);
        }
      }
      return null;
    }
  }

  private synchronized void note(String text) {
    wrong.add(text);
  }

  private synchronized void add(String what) {
    counts.merge(what, 1, Integer::sum);
  }

  private synchronized Integer acknowledge(int key, boolean isWritten, int round) {
    if (isWritten) {
      acknowledged.add(key);
    }
    return acknowledged.isEmpty()
        ? null
        : acknowledged.get((int) (round * 7919L % acknowledged.size()));
  }

  private void writeAndRead(int key, int round) {
    boolean isClaimed = IS_LYING && key % 20 == 0;
    boolean isWritten =
        isClaimed || execute(null, insert, NAME, key, NAME + "-" + key) != null;
    Integer known = acknowledge(key, isWritten, round);
    if (known != null) {
      check(known);
    }
  }

  /** Reads what was acknowledged; false when nobody answers. */
  private boolean check(int key) {
    Optional<Row> row = execute(null, select, NAME, key);
    if (row == null) {
      return false;
    }
    add("reads");
    String found = row.map(r -> r.getString("v")).orElse(null);
    if (!(NAME + "-" + key).equals(found)) {
      note("key " + key + " was acknowledged and reads " + found);
    }
    return true;
  }

  /** A counter that one worker alone raises. */
  private static final class Register {
    final String name;
    int value;
    // Of the step from the value on.
    boolean isUnknown;

    Register(String name) {
      this.name = name;
    }
  }

  /** Each step is applied once, or it is not known. */
  private void raise(Register own) {
    Optional<Row> row = execute(null, cas, own.value + 1, own.name, own.value);
    if (row == null) {
      add("unknown");
      own.isUnknown = true;
      return;
    }
    if (row.orElseThrow().getBoolean("[applied]")) {
      add("applied");
      own.value++;
    } else {
      int before = row.orElseThrow().getInt("v");
      if (own.isUnknown && before == own.value + 1) {
        add("found applied");
      } else {
        note(own.name + ": " + own.value + " was there and " + before + " is read");
      }
      own.value = before;
    }
    own.isUnknown = false;
  }

  private Integer serial(String key) {
    Optional<Row> row = execute(DefaultConsistencyLevel.SERIAL, serial, key);
    return row == null ? null : row.map(r -> r.getInt("v")).orElse(-1);
  }

  /** A counter that everybody raises: it never goes back. */
  private void share() {
    int least;
    synchronized (this) {
      least = seen;
    }
    Integer value = serial("shared");
    if (value == null) {
      return;
    }
    if (value < least) {
      note("shared: " + least + " was there and " + value + " is read");
    }
    Optional<Row> row = execute(null, cas, value + 1, "shared", value);
    boolean isApplied = row != null && row.orElseThrow().getBoolean("[applied]");
    if (row == null || isApplied) {
      add(row == null ? "shared unknown" : "shared applied");
    }
    synchronized (this) {
      seen = Math.max(seen, isApplied ? value + 1 : value);
    }
  }

  private void work(int number) {
    Register own = new Register(NAME + "-" + number);
    while (execute(null, create, own.name) == null) {}
    for (int round = 0; !isStopping; round++) {
      writeAndRead(FIRST_KEY + number + round * WORKERS, round);
      if (round % 4 == 0) {
        raise(own);
      }
      if (round % 8 == 1) {
        share();
      }
      try {
        Thread.sleep(PAUSE_MILLIS);
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
    }
    Integer last = serial(own.name);
    while (last == null) {
      last = serial(own.name);
    }
    if (last != own.value && !(own.isUnknown && last == own.value + 1)) {
      note(own.name + ": " + own.value + " was there and " + last + " is read at the end");
    }
  }

  private void verify(int number) {
    for (int at = number; at < acknowledged.size(); at += VERIFIERS) {
      while (!check(acknowledged.get(at))) {}
    }
  }

  private List<Thread> start(int count, IntConsumer body) {
    List<Thread> threads = new ArrayList<>();
    for (int n = 0; n < count; n++) {
      int number = n;
      Thread thread =
          new Thread(
              () -> {
                try {
                  body.accept(number);
                } catch (RuntimeException error) {
                  note("the program failed: " + error);
                }
              });
      thread.start();
      threads.add(thread);
    }
    return threads;
  }

  private static String json(Map<String, Integer> map) {
    List<String> parts = new ArrayList<>();
    map.forEach((name, count) -> parts.add("\"" + name + "\": " + count));
    return "{" + String.join(", ", parts) + "}";
  }

  private static String quoted(String text) {
    return "\"" + text.replaceAll("[\\\\\"\\p{Cntrl}]", "'") + "\"";
  }

  private void run() throws IOException, InterruptedException {
    List<Thread> workers = start(WORKERS, this::work);
    System.out.println("ready");
    // Any other line, or the end of the input, stops the load.
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    while ("count".equals(input.readLine())) {
      synchronized (this) {
        System.out.println(acknowledged.size());
      }
    }
    isStopping = true;
    for (Thread thread : workers) {
      thread.join();
    }
    counts.put("reads under faults", counts.getOrDefault("reads", 0));
    for (Thread thread : start(VERIFIERS, this::verify)) {
      thread.join();
    }
    session.close();
    System.out.printf(
        "{\"driver\": \"%s\", \"acknowledged\": %d, \"counts\": %s, \"errors\": %s, \"wrong\": %s}%n",
        NAME, acknowledged.size(), json(counts), json(errors), wrong.stream().map(Load::quoted).toList());
  }

  /** Starts the load; a line on the input ends it. */
  public static void main(String[] arguments) throws IOException, InterruptedException {
    new Load().run();
  }
}
