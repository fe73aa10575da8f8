package suite;

import static suite.Main.check;
import static suite.Main.define;
import static suite.Main.equal;
import static suite.Main.execute;
import static suite.Main.keyspace;
import static suite.Main.one;
import static suite.Main.session;

import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.CqlVector;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.type.DataTypes;
import com.datastax.oss.driver.api.core.type.TupleType;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import suite.Main.Test;

/** Every native type, collections, tuples, user types and vectors: written, read back, compared. */
final class Types {
  private Types() {}

  private static int tables;

  private static void roundTrip(String cqlType, Object... values) {
    String table = "rt_" + tables++;
    define("CREATE TABLE " + table + " (k int PRIMARY KEY, v " + cqlType + ")");
    PreparedStatement insert = session.prepare("INSERT INTO " + table + " (k, v) VALUES (?, ?)");
    PreparedStatement select = session.prepare("SELECT v FROM " + table + " WHERE k = ?");
    for (int key = 0; key < values.length; key++) {
      session.execute(insert.bind(key, values[key]));
      Object read = one(session.execute(select.bind(key))).getObject(0);
      check(values[key].equals(read), cqlType + ": wrote " + values[key] + ", read " + read);
    }
    session.execute(insert.bind(99, null));
    check(one(session.execute(select.bind(99))).isNull(0), cqlType + ": null");
  }

  @Test
  static void everyNativeTypeRoundTrips() throws UnknownHostException {
    BigInteger huge = BigInteger.ONE.shiftLeft(200);
    UUID id = UUID.fromString("f79326be-2d7b-4996-b881-f9f0d571ffe0");
    roundTrip("ascii", "", "plain ascii");
    roundTrip("bigint", 0L, Long.MAX_VALUE, Long.MIN_VALUE);
    roundTrip("blob", ByteBuffer.wrap(new byte[0]), ByteBuffer.wrap(new byte[] {0, -1}));
    roundTrip("boolean", true, false);
    roundTrip("date", LocalDate.EPOCH, LocalDate.of(2024, 2, 29), LocalDate.of(1696, 3, 16));
    roundTrip(
        "decimal",
        BigDecimal.ZERO,
        new BigDecimal("-123456789012345678901234567890.1234567890"),
        new BigDecimal("1E+20"),
        new BigDecimal("1E-20"));
    roundTrip("double", 0.0, -0.0, 1.5e300, Double.NaN, Double.POSITIVE_INFINITY, 4.9e-324);
    roundTrip(
        "duration",
        CqlDuration.newInstance(0, 0, 0),
        CqlDuration.newInstance(14, 3, 5_000_000_000L),
        CqlDuration.newInstance(-1, -2, -3));
    roundTrip("float", 0f, 1.5f, Float.NaN, Float.NEGATIVE_INFINITY);
    roundTrip(
        "inet",
        InetAddress.getByName("127.0.0.1"),
        InetAddress.getByName("2001:db8::ff00:42:8329"));
    roundTrip("int", 0, Integer.MAX_VALUE, Integer.MIN_VALUE);
    roundTrip("smallint", (short) 0, Short.MAX_VALUE, Short.MIN_VALUE);
    roundTrip("text", "", "Žluťoučký kůň", "\uD83D\uDE00 \n\t'\"");
    roundTrip("time", LocalTime.MIN, LocalTime.MAX);
    roundTrip(
        "timestamp",
        Instant.EPOCH,
        Instant.parse("2026-07-01T12:30:45.678Z"),
        Instant.parse("1900-01-01T00:00:00Z"));
    roundTrip("timeuuid", UUID.fromString("d2177dd0-eaa2-11de-a572-001b779c76e3"));
    roundTrip("tinyint", (byte) 0, Byte.MAX_VALUE, Byte.MIN_VALUE);
    roundTrip("uuid", new UUID(0, 0), id);
    roundTrip("varchar", "varchar is text");
    roundTrip(
        "varint",
        BigInteger.ZERO,
        BigInteger.valueOf(-1),
        BigInteger.valueOf(127),
        BigInteger.valueOf(128),
        BigInteger.valueOf(-129),
        huge,
        huge.negate());
  }

  @Test
  static void collectionsTuplesAndVectorsRoundTrip() {
    roundTrip("list<int>", List.of(1, 2, 3, 2));
    roundTrip("set<text>", Set.of("x", "a"));
    roundTrip("map<text, int>", Map.of("a", 1, "b", 2));
    roundTrip("map<int, frozen<list<text>>>", Map.of(1, List.of("x"), 2, List.of("y", "z")));
    roundTrip("frozen<list<int>>", List.of(1, 2, 3));
    roundTrip("frozen<set<uuid>>", Set.of(new UUID(1, 1), new UUID(2, 2)));
    roundTrip("list<frozen<map<text, frozen<set<int>>>>>", List.of(Map.of("a", Set.of(1, 2))));
    TupleType tuple = DataTypes.tupleOf(DataTypes.INT, DataTypes.TEXT);
    roundTrip("tuple<int, text>", tuple.newValue(1, "a"), tuple.newValue(1, null));
    roundTrip("list<frozen<tuple<int, text>>>", List.of(tuple.newValue(1, "a")));
    roundTrip("vector<float, 3>", CqlVector.newInstance(1.5f, -2f, 0.25f));
    roundTrip("vector<text, 2>", CqlVector.newInstance("a", "longer than the other"));
  }

  @Test
  static void userTypesRoundTrip() {
    define("CREATE TYPE address (street text, zip int, tags frozen<set<text>>)");
    define(
        "CREATE TABLE people (k int PRIMARY KEY, a frozen<address>, b address, "
            + "l list<frozen<address>>)");
    UserDefinedType type =
        session
            .getMetadata()
            .getKeyspace(keyspace)
            .flatMap(meta -> meta.getUserDefinedType("address"))
            .orElseThrow();
    UdtValue home = type.newValue("Main", 12345, Set.of("a", "b"));
    UdtValue part = type.newValue("Half", null, null);
    execute("INSERT INTO people (k, a, b, l) VALUES (?, ?, ?, ?)", 1, home, part,
        List.of(home, part));
    define("UPDATE people SET b.zip = 7 WHERE k = 1");
    Row row = one(define("SELECT a, b, l, a.street AS s FROM people WHERE k = 1"));
    equal(row.getUdtValue("a").getFormattedContents(), home.getFormattedContents());
    equal(row.getUdtValue("b").getInt("zip"), 7);
    equal(row.getUdtValue("b").getString("street"), "Half");
    List<UdtValue> list = row.getList("l", UdtValue.class);
    equal(list.get(1).getFormattedContents(), part.getFormattedContents());
    equal(row.getString("s"), "Main");
  }

  @Test
  static void collectionUpdatesAddAndRemoveElements() {
    define("CREATE TABLE upd (k int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>)");
    define("INSERT INTO upd (k, l, s, m) VALUES (1, [1], {1}, {'a': 1})");
    execute("UPDATE upd SET l = l + ?, s = s + ?, m = m + ? WHERE k = 1",
        List.of(2, 3), Set.of(2), Map.of("b", 2));
    execute("UPDATE upd SET l[?] = ?, s = s - ?, m[?] = ? WHERE k = 1", 1, 11, Set.of(1), "c", 3);
    define("DELETE m['a'], l[0] FROM upd WHERE k = 1");
    Row row = one(define("SELECT * FROM upd WHERE k = 1"));
    equal(row.getList("l", Integer.class), List.of(11, 3));
    equal(row.getSet("s", Integer.class), Set.of(2));
    equal(row.getMap("m", String.class, Integer.class), Map.of("b", 2, "c", 3));
  }
}
