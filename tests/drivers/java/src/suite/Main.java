package suite;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.config.ProgrammaticDriverConfigLoaderBuilder;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.function.Consumer;

/**
 * What an application does with the Java driver, against the server under test.
 *
 * <p>It uses only what a single node must offer: no conditional statements, counters, views or
 * roles. The server comes from HELENUS_HOST and HELENUS_PORT. A test is a method with {@link Test}
 * that throws when something is wrong; the last line is {@code N passed, N failed}.
 */
public final class Main {

  /** Marks a method as a test. */
  @Retention(RetentionPolicy.RUNTIME)
  @interface Test {}

  /** The session in the keyspace of the suite. */
  static CqlSession session;

  static String keyspace;

  private Main() {}

  /** A builder for the server under test, with options of the test's own. */
  static CqlSessionBuilder builder(Consumer<ProgrammaticDriverConfigLoaderBuilder> options) {
    ProgrammaticDriverConfigLoaderBuilder loader =
        DriverConfigLoader.programmaticBuilder()
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONNECTION_SET_KEYSPACE_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(20))
            .withDuration(
                DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(20));
    options.accept(loader);
    String host = System.getenv().getOrDefault("HELENUS_HOST", "127.0.0.1");
    int port = Integer.parseInt(System.getenv().getOrDefault("HELENUS_PORT", "9042"));
    CqlSessionBuilder builder =
        CqlSession.builder()
            .withConfigLoader(loader.build())
            .addContactPoint(new InetSocketAddress(host, port));
    return builder.withLocalDatacenter(datacenter == null ? "datacenter1" : datacenter);
  }

  private static String datacenter;

  /** A second session in the keyspace of the suite; the test closes it. */
  static CqlSession connect(Consumer<ProgrammaticDriverConfigLoaderBuilder> options) {
    return builder(options).withKeyspace(keyspace).build();
  }

  /** Runs a statement that is not prepared. */
  static ResultSet define(String cql) {
    return session.execute(cql);
  }

  /** Prepares a statement and runs it with positional values. */
  static ResultSet execute(String cql, Object... values) {
    return session.execute(session.prepare(cql).bind(values));
  }

  /** The only row of a result. */
  static Row one(ResultSet result) {
    List<Row> rows = result.all();
    equal(rows.size(), 1);
    return rows.get(0);
  }

  static void equal(Object got, Object want) {
    if (!Objects.deepEquals(got, want)) {
      throw new AssertionError("got " + show(got) + ", want " + show(want));
    }
  }

  static void check(boolean right, Object shown) {
    if (!right) {
      throw new AssertionError(show(shown));
    }
  }

  private static String show(Object value) {
    return value instanceof Object[] array ? Arrays.deepToString(array) : String.valueOf(value);
  }

  /** Waits until the condition holds, which an event of the server makes true. */
  static void await(String what, java.util.function.BooleanSupplier condition)
      throws InterruptedException {
    long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    while (!condition.getAsBoolean()) {
      check(System.nanoTime() < deadline, what);
      Thread.sleep(20);
    }
  }

  public static void main(String[] names) throws Exception {
    int passed = 0;
    int failed = 0;
    keyspace = "drv_java_" + UUID.randomUUID().toString().substring(0, 8);
    try (CqlSession admin = builder(options -> {}).build()) {
      admin.execute(
          "CREATE KEYSPACE " + keyspace
              + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
      datacenter = admin.getMetadata().getNodes().values().iterator().next().getDatacenter();
      session = connect(options -> {});
      for (Class<?> suite : List.of(Connection.class, Statements.class, Types.class)) {
        Method[] methods = suite.getDeclaredMethods();
        // The virtual machine's own order is arbitrary.
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
          boolean wanted =
              names.length == 0 || Arrays.stream(names).anyMatch(method.getName()::contains);
          if (method.getAnnotation(Test.class) == null || !wanted) {
            continue;
          }
          try {
            method.invoke(null);
            passed++;
          } catch (InvocationTargetException wrapped) {
            failed++;
            System.out.println("FAILED " + method.getName());
            wrapped.getCause().printStackTrace(System.out);
          }
        }
      }
      session.close();
      admin.execute("DROP KEYSPACE " + keyspace);
    } catch (RuntimeException error) {
      failed++;
      error.printStackTrace(System.out);
    }
    System.out.println(passed + " passed, " + failed + " failed");
    System.exit(failed == 0 && passed > 0 ? 0 : 1);
  }
}
