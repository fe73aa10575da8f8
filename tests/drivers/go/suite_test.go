// Package suite is what an application does with gocql, against the server under test.
//
// It uses only what a single node must offer: no conditional statements, counters, views or roles.
// The server comes from HELENUS_HOST and HELENUS_PORT.
package suite

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

var (
	session  *gocql.Session
	keyspace string
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// configuration is for the server under test, before a keyspace is chosen.
func configuration() *gocql.ClusterConfig {
	host := env("HELENUS_HOST", "127.0.0.1")
	cluster := gocql.NewCluster(host)
	port, err := strconv.Atoi(env("HELENUS_PORT", "9042"))
	if err != nil {
		panic(err)
	}
	cluster.Port = port
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 20 * time.Second
	cluster.Consistency = gocql.LocalQuorum
	cluster.NumConns = 2
	return cluster
}

// connect opens a session in the keyspace of the suite; the test closes it.
func connect(t *testing.T, change func(*gocql.ClusterConfig)) *gocql.Session {
	t.Helper()
	cluster := configuration()
	cluster.Keyspace = keyspace
	if change != nil {
		change(cluster)
	}
	other, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	return other
}

// execute runs a statement that must work.
func execute(t *testing.T, cql string, values ...any) {
	t.Helper()
	if err := session.Query(cql, values...).Exec(); err != nil {
		t.Fatalf("%s: %v", cql, err)
	}
}

// scan reads the one row of a query.
func scan(t *testing.T, query *gocql.Query, into ...any) {
	t.Helper()
	if err := query.Scan(into...); err != nil {
		t.Fatalf("%s: %v", query.Statement(), err)
	}
}

// equal compares by the printed form, which shows what a failure needs.
func equal(t *testing.T, got, want any) {
	t.Helper()
	if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Fatalf("got %#v, want %#v", got, want)
	}
}

func TestMain(m *testing.M) {
	admin, err := configuration().CreateSession()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	keyspace = "drv_go_" + strings.ReplaceAll(gocql.TimeUUID().String(), "-", "")[:8]
	err = admin.Query("CREATE KEYSPACE " + keyspace + " WITH replication = " +
		"{'class': 'SimpleStrategy', 'replication_factor': 1}").Exec()
	if err == nil {
		cluster := configuration()
		cluster.Keyspace = keyspace
		session, err = cluster.CreateSession()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	session.Close()
	if err := admin.Query("DROP KEYSPACE " + keyspace).Exec(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	admin.Close()
	os.Exit(code)
}
