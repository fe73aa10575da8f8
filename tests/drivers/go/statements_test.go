package suite

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func TestInsertSelectUpdateDelete(t *testing.T) {
	execute(t, "CREATE TABLE crud (k int, c int, a text, b int, PRIMARY KEY (k, c))")
	execute(t, "INSERT INTO crud (k, c, a, b) VALUES (?, ?, ?, ?)", 1, 1, "one", 10)
	execute(t, "INSERT INTO crud (k, c, a) VALUES (1, 2, 'two')")
	execute(t, "UPDATE crud SET b = ? WHERE k = ? AND c = ?", 20, 1, 2)
	rows, err := session.Query("SELECT k, c, a, b FROM crud WHERE k = 1").Iter().SliceMap()
	if err != nil {
		t.Fatal(err)
	}
	equal(t, rows, []map[string]any{
		{"k": 1, "c": 1, "a": "one", "b": 10}, {"k": 1, "c": 2, "a": "two", "b": 20}})
	execute(t, "DELETE FROM crud WHERE k = ? AND c = ?", 1, 1)
	var a string
	err = session.Query("SELECT a FROM crud WHERE k = 1 AND c = 1").Scan(&a)
	if !errors.Is(err, gocql.ErrNotFound) {
		t.Fatalf("%v", err)
	}
	execute(t, "TRUNCATE crud")
	var count int
	scan(t, session.Query("SELECT count(*) FROM crud"), &count)
	equal(t, count, 0)
}

func TestPreparedStatementKnowsItsColumns(t *testing.T) {
	execute(t, "CREATE TABLE prep (k int, c text, v blob, PRIMARY KEY (k, c))")
	metadata, err := session.StatementMetadata(t.Context(),
		"INSERT INTO prep (k, c, v) VALUES (?, ?, ?)", keyspace)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, column := range metadata.BindColumns {
		got = append(got, fmt.Sprintf("%s.%s.%s %d",
			column.Keyspace, column.Table, column.Name, column.TypeInfo.Type()))
	}
	equal(t, got, []string{
		fmt.Sprintf("%s.prep.k %d", keyspace, gocql.TypeInt),
		fmt.Sprintf("%s.prep.c %d", keyspace, gocql.TypeVarchar),
		fmt.Sprintf("%s.prep.v %d", keyspace, gocql.TypeBlob)})
	equal(t, metadata.PKBindColumnIndexes, []int{0})
}

func TestNamedUnsetAndNullValues(t *testing.T) {
	execute(t, "CREATE TABLE unset (k int PRIMARY KEY, a int, b int)")
	execute(t, "INSERT INTO unset (k, a, b) VALUES (:key, :x, :y)", gocql.NamedValue("y", 20),
		gocql.NamedValue("key", 1), gocql.NamedValue("x", 10))
	read := func() [2]string {
		var a, b *int
		scan(t, session.Query("SELECT a, b FROM unset WHERE k = 1"), &a, &b)
		show := func(value *int) string {
			if value == nil {
				return "null"
			}
			return fmt.Sprint(*value)
		}
		return [2]string{show(a), show(b)}
	}
	equal(t, read(), [2]string{"10", "20"})
	execute(t, "INSERT INTO unset (k, a, b) VALUES (?, ?, ?)", 1, gocql.UnsetValue, 30)
	equal(t, read(), [2]string{"10", "30"})
	execute(t, "INSERT INTO unset (k, a, b) VALUES (?, ?, ?)", 1, nil, gocql.UnsetValue)
	equal(t, read(), [2]string{"null", "30"})
}

func TestPreparedSelectStarSurvivesAlterTable(t *testing.T) {
	other := connect(t, func(cluster *gocql.ClusterConfig) { cluster.ProtoVersion = 5 })
	execute(t, "CREATE TABLE altered (k int PRIMARY KEY, a int)")
	execute(t, "INSERT INTO altered (k, a) VALUES (1, 2)")
	read := func() map[string]any {
		row := map[string]any{}
		if err := other.Query("SELECT * FROM altered WHERE k = ?", 1).MapScan(row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	equal(t, read(), map[string]any{"k": 1, "a": 2})
	execute(t, "ALTER TABLE altered ADD b text")
	execute(t, "INSERT INTO altered (k, a, b) VALUES (1, 3, 'x')")
	equal(t, read(), map[string]any{"k": 1, "a": 3, "b": "x"})
}

func TestClientTimestampsAndTtl(t *testing.T) {
	execute(t, "CREATE TABLE stamped (k int PRIMARY KEY, v text)")
	write := func(stamp int64, value string) {
		query := session.Query("INSERT INTO stamped (k, v) VALUES (1, ?)", value)
		if err := query.WithTimestamp(stamp).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	write(2000, "new")
	write(1000, "old")
	var value string
	var stamp int64
	scan(t, session.Query("SELECT v, writetime(v) FROM stamped WHERE k = 1"), &value, &stamp)
	equal(t, value, "new")
	equal(t, stamp, int64(2000))
	execute(t, "INSERT INTO stamped (k, v) VALUES (2, 'x') USING TTL ?", 1000)
	var ttl int
	scan(t, session.Query("SELECT ttl(v) FROM stamped WHERE k = 2"), &ttl)
	if ttl <= 900 || ttl > 1000 {
		t.Fatalf("ttl %d", ttl)
	}
}

func TestPaging(t *testing.T) {
	execute(t, "CREATE TABLE paged (k int, c int, v text, PRIMARY KEY (k, c))")
	for k := range 5 {
		for c := range 40 {
			execute(t, "INSERT INTO paged (k, c, v) VALUES (?, ?, ?)", k, c, fmt.Sprint(k, c))
		}
	}
	for _, size := range []int{1, 7, 40, 199, 200, 5000} {
		seen := map[[2]int]string{}
		iter := session.Query("SELECT k, c, v FROM paged").PageSize(size).Iter()
		var k, c int
		var v string
		for iter.Scan(&k, &c, &v) {
			seen[[2]int{k, c}] = v
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		equal(t, len(seen), 200)
		equal(t, seen[[2]int{3, 17}], "3 17")
	}
	clusterings := func(query *gocql.Query) (out []int) {
		iter := query.Iter()
		var c int
		for iter.Scan(&c) {
			out = append(out, c)
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	down := clusterings(session.Query("SELECT c FROM paged WHERE k = ? ORDER BY c DESC", 3).PageSize(7))
	for i, c := range down {
		equal(t, c, 39-i)
	}
	equal(t, len(down), 40)
	equal(t, clusterings(session.Query("SELECT c FROM paged WHERE k = 1 LIMIT 5").PageSize(2)),
		[]int{0, 1, 2, 3, 4})

	first := session.Query("SELECT c FROM paged WHERE k = ?", 4).PageSize(15).PageState(nil).Iter()
	state := first.PageState()
	equal(t, first.NumRows(), 15)
	if err := first.Close(); err != nil || len(state) == 0 {
		t.Fatal("no paging state", err)
	}
	rest := clusterings(connect(t, nil).Query("SELECT c FROM paged WHERE k = ?", 4).
		PageSize(100).PageState(state))
	equal(t, len(rest), 25)
	equal(t, rest[0], 15)
}

func TestTokensAreCassandras(t *testing.T) {
	execute(t, "CREATE TABLE toks (k text PRIMARY KEY)")
	for key, want := range map[string]int64{
		"a":                                   -8839064797231613815,
		"key-1":                               -129884440098280706,
		"a longer key, of more than 16 bytes": -2702188034356223136,
		"Žluťoučký kůň":                       -8644720545154997981,
	} {
		execute(t, "INSERT INTO toks (k) VALUES (?)", key)
		var got int64
		scan(t, session.Query("SELECT token(k) FROM toks WHERE k = ?", key), &got)
		equal(t, got, want)
	}
}

func TestBatches(t *testing.T) {
	execute(t, "CREATE TABLE batched (k int, c int, v text, PRIMARY KEY (k, c))")
	for name, kind := range map[string]gocql.BatchType{
		"logged": gocql.LoggedBatch, "unlogged": gocql.UnloggedBatch} {
		execute(t, "TRUNCATE batched")
		batch := session.Batch(kind)
		for i := range 20 {
			batch.Query("INSERT INTO batched (k, c, v) VALUES (?, ?, ?)", i%3, i, name)
		}
		batch.Query("INSERT INTO batched (k, c, v) VALUES (9, 9, 'text')")
		batch.Query("DELETE FROM batched WHERE k = 0 AND c = 0")
		if err := batch.WithTimestamp(5555).Exec(); err != nil {
			t.Fatal(err)
		}
		var count int
		scan(t, session.Query("SELECT count(*) FROM batched"), &count)
		equal(t, count, 20)
		var stamp int64
		scan(t, session.Query("SELECT writetime(v) FROM batched WHERE k = 9 AND c = 9"), &stamp)
		equal(t, stamp, int64(5555))
	}
}

func TestErrors(t *testing.T) {
	execute(t, "CREATE TABLE errs (k int, c int, v int, PRIMARY KEY (k, c))")
	for _, each := range []struct {
		cql, text string
		code      int
	}{
		{"SELEKT * FROM nothing", "line 1:0", gocql.ErrCodeSyntax},
		{"SELECT * FROM nosuch", "table nosuch does not exist", gocql.ErrCodeInvalid},
		{"SELECT * FROM nokeyspace.t", "keyspace nokeyspace does not exist", gocql.ErrCodeInvalid},
		{"SELECT zzz FROM errs", "Undefined column name zzz", gocql.ErrCodeInvalid},
		{"SELECT * FROM errs WHERE v = 1", "use ALLOW FILTERING", gocql.ErrCodeInvalid},
		{"INSERT INTO errs (k, v) VALUES (1, 1)", "Some clustering keys are missing: c",
			gocql.ErrCodeInvalid},
		{"CREATE TABLE errs (k int PRIMARY KEY)", "errs", gocql.ErrCodeAlreadyExists},
		{"CREATE KEYSPACE badrep WITH replication = {'class': 'NoStrategy'}", "NoStrategy",
			gocql.ErrCodeConfig},
	} {
		err := session.Query(each.cql).Exec()
		var refused gocql.RequestError
		if !errors.As(err, &refused) {
			t.Fatalf("%s: %v", each.cql, err)
		}
		if refused.Code() != each.code || !strings.Contains(refused.Message(), each.text) {
			t.Fatalf("%s: code %#x, %s", each.cql, refused.Code(), refused.Message())
		}
	}
	var exists *gocql.RequestErrAlreadyExists
	err := session.Query("CREATE TABLE errs (k int PRIMARY KEY)").Exec()
	if !errors.As(err, &exists) || exists.Keyspace != keyspace || exists.Table != "errs" {
		t.Fatalf("%#v", err)
	}
}

func TestQuorumOfThreeReplicasIsUnavailableOnOneNode(t *testing.T) {
	name := keyspace + "_rf3"
	execute(t, "CREATE KEYSPACE "+name+" WITH replication = "+
		"{'class': 'SimpleStrategy', 'replication_factor': 3}")
	defer execute(t, "DROP KEYSPACE "+name)
	execute(t, "CREATE TABLE "+name+".t (k int PRIMARY KEY)")
	insert := "INSERT INTO " + name + ".t (k) VALUES (1)"
	err := session.Query(insert).Consistency(gocql.Quorum).Exec()
	var unavailable *gocql.RequestErrUnavailable
	if !errors.As(err, &unavailable) {
		t.Fatalf("%v", err)
	}
	equal(t, []int{unavailable.Required, unavailable.Alive}, []int{2, 1})
	if err := session.Query(insert).Consistency(gocql.One).Exec(); err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentLoadReadsWhatItWrote(t *testing.T) {
	execute(t, "CREATE TABLE load (k int PRIMARY KEY, v text, n bigint)")
	const workers, each = 32, 100
	failures := make(chan error, workers)
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range each {
				key := worker*each + i
				err := session.Query("INSERT INTO load (k, v, n) VALUES (?, ?, ?)",
					key, fmt.Sprint("value-", key), int64(key)*int64(key)).Exec()
				if err == nil {
					var v string
					var n int64
					err = session.Query("SELECT v, n FROM load WHERE k = ?", key).Scan(&v, &n)
					if err == nil && (v != fmt.Sprint("value-", key) || n != int64(key)*int64(key)) {
						err = fmt.Errorf("key %d: read %q, %d", key, v, n)
					}
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		t.Fatal(err)
	}
	var count int
	scan(t, session.Query("SELECT count(*) FROM load"), &count)
	equal(t, count, workers*each)
}
