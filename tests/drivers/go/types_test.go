package suite

import (
	"fmt"
	"math"
	"math/big"
	"net"
	"reflect"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"gopkg.in/inf.v0"
)

var tables int

// roundTrip writes each value, reads it back and compares; then null.
func roundTrip[T any](t *testing.T, cqlType string, values ...T) {
	t.Helper()
	t.Run(cqlType, func(t *testing.T) {
		tables++
		table := fmt.Sprintf("rt_%d", tables)
		execute(t, fmt.Sprintf("CREATE TABLE %s (k int PRIMARY KEY, v %s)", table, cqlType))
		insert := fmt.Sprintf("INSERT INTO %s (k, v) VALUES (?, ?)", table)
		query := fmt.Sprintf("SELECT v FROM %s WHERE k = ?", table)
		for key, value := range values {
			execute(t, insert, key, value)
			var read T
			scan(t, session.Query(query, key), &read)
			if !same(read, value) {
				t.Fatalf("read %#v, wrote %#v", read, value)
			}
		}
		execute(t, insert, 99, nil)
		var null *T
		scan(t, session.Query(query, 99), &null)
		if null != nil && !reflect.ValueOf(*null).IsZero() {
			t.Fatalf("read %#v, wrote null", *null)
		}
	})
}

func same(a, b any) bool {
	switch left := a.(type) {
	case time.Time:
		return left.Equal(b.(time.Time))
	case net.IP:
		return left.Equal(b.(net.IP))
	case []byte: // the driver reads an empty blob as nil
		return string(left) == string(b.([]byte))
	case *big.Int:
		return left.Cmp(b.(*big.Int)) == 0
	case *inf.Dec:
		return left.Cmp(b.(*inf.Dec)) == 0 && left.Scale() == b.(*inf.Dec).Scale()
	case float64:
		return math.Float64bits(left) == math.Float64bits(b.(float64))
	}
	return reflect.DeepEqual(a, b)
}

func decimal(text string) *inf.Dec {
	value, ok := new(inf.Dec).SetString(text)
	if !ok {
		panic(text)
	}
	return value
}

func TestEveryNativeTypeRoundTrips(t *testing.T) {
	huge := new(big.Int).Lsh(big.NewInt(1), 200)
	day := func(year int, month time.Month, day int) time.Time {
		return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	}
	id, err := gocql.ParseUUID("f79326be-2d7b-4996-b881-f9f0d571ffe0")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, "ascii", "", "plain ascii")
	roundTrip(t, "bigint", int64(0), math.MaxInt64, math.MinInt64)
	roundTrip(t, "blob", []byte{}, []byte{0, 255})
	roundTrip(t, "boolean", true, false)
	roundTrip(t, "date", day(1970, 1, 1), day(2024, 2, 29), day(1696, 3, 16))
	roundTrip(t, "decimal", decimal("0"), decimal("-123456789012345678901234567890.1234567890"),
		inf.NewDec(1, -20), inf.NewDec(1, 20))
	roundTrip(t, "double", 0.0, math.Copysign(0, -1), 1.5e300, math.Inf(1), math.Inf(-1), 5e-324)
	roundTrip(t, "duration", gocql.Duration{}, gocql.Duration{Months: 14, Days: 3, Nanoseconds: 5e9},
		gocql.Duration{Months: -1, Days: -2, Nanoseconds: -3})
	roundTrip(t, "float", float32(0), float32(1.5), float32(math.Inf(1)))
	roundTrip(t, "inet", net.ParseIP("127.0.0.1"), net.ParseIP("2001:db8::ff00:42:8329"))
	roundTrip(t, "int", 0, math.MaxInt32, math.MinInt32)
	roundTrip(t, "smallint", int16(0), math.MaxInt16, math.MinInt16)
	roundTrip(t, "text", "", "Žluťoučký kůň", "\U0001f600 \n\t'\"")
	roundTrip(t, "time", time.Duration(0), 86_399_999_999_999*time.Nanosecond)
	roundTrip(t, "timestamp", time.UnixMilli(0), time.UnixMilli(1_782_909_045_678),
		day(1900, 1, 1))
	roundTrip(t, "timeuuid", gocql.TimeUUID())
	roundTrip(t, "tinyint", int8(0), math.MaxInt8, math.MinInt8)
	roundTrip(t, "uuid", gocql.UUID{}, id)
	roundTrip(t, "varchar", "varchar is text")
	roundTrip(t, "varint", big.NewInt(0), big.NewInt(-1), big.NewInt(127), big.NewInt(128),
		big.NewInt(-128), big.NewInt(-129), huge, new(big.Int).Neg(huge))
}

func TestCollectionsRoundTrip(t *testing.T) {
	roundTrip(t, "list<int>", []int{1, 2, 3, 2})
	roundTrip(t, "set<text>", []string{"a", "x"})
	roundTrip(t, "map<text, int>", map[string]int{"a": 1, "b": 2})
	roundTrip(t, "map<int, frozen<list<text>>>", map[int][]string{1: {"x"}, 2: {"y", "z"}})
	roundTrip(t, "frozen<list<int>>", []int{1, 2, 3}, []int{})
	roundTrip(t, "frozen<set<uuid>>", []gocql.UUID{{1}, {2}})
	roundTrip(t, "list<frozen<map<text, frozen<set<int>>>>>", []map[string][]int{{"a": {1, 2}}})
	roundTrip(t, "vector<float, 3>", []float32{1.5, -2, 0.25})
	roundTrip(t, "vector<text, 2>", []string{"a", "longer than the other"})
}

func TestTuplesAndUserTypesRoundTrip(t *testing.T) {
	execute(t, "CREATE TYPE address (street text, zip int, tags frozen<set<text>>)")
	execute(t, "CREATE TABLE people (k int PRIMARY KEY, a frozen<address>, b address, "+
		"l list<frozen<address>>, t tuple<int, text>)")
	type address struct {
		Street string   `cql:"street"`
		Zip    int      `cql:"zip"`
		Tags   []string `cql:"tags"`
	}
	home := address{"Main", 12345, []string{"a", "b"}}
	execute(t, "INSERT INTO people (k, a, b, l, t) VALUES (?, ?, ?, ?, (?, ?))",
		1, home, home, []address{home, home}, 7, "seven")
	var a, b address
	var list []address
	var number int
	var text string
	scan(t, session.Query("SELECT a, b, l, t FROM people WHERE k = 1"), &a, &b, &list, &number, &text)
	equal(t, []address{a, b}, []address{home, home})
	equal(t, list, []address{home, home})
	equal(t, fmt.Sprintf("%d %s", number, text), "7 seven")
	execute(t, "UPDATE people SET b.zip = 7 WHERE k = 1")
	var zip int
	scan(t, session.Query("SELECT b.zip FROM people WHERE k = 1"), &zip)
	equal(t, zip, 7)
}

func TestCollectionUpdates(t *testing.T) {
	execute(t, "CREATE TABLE upd (k int PRIMARY KEY, l list<int>, s set<int>, m map<text, int>)")
	execute(t, "INSERT INTO upd (k, l, s, m) VALUES (1, [1], {1}, {'a': 1})")
	execute(t, "UPDATE upd SET l = l + ?, s = s + ?, m = m + ? WHERE k = 1",
		[]int{2, 3}, []int{2}, map[string]int{"b": 2})
	execute(t, "UPDATE upd SET l[?] = ?, s = s - ?, m[?] = ? WHERE k = 1", 1, 11, []int{1}, "c", 3)
	execute(t, "DELETE m['a'], l[0] FROM upd WHERE k = 1")
	var list, set []int
	var pairs map[string]int
	scan(t, session.Query("SELECT l, s, m FROM upd WHERE k = 1"), &list, &set, &pairs)
	equal(t, [][]int{list, set}, [][]int{{11, 3}, {2}})
	equal(t, pairs, map[string]int{"b": 2, "c": 3})
}
