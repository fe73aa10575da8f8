// The load of one driver while nodes fail: gocql. See ../README.md, "Drivers under faults".
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	name      = "go"
	workers   = 2
	verifiers = 8
	pause     = 10 * time.Millisecond
	timeout   = 5 * time.Second

	insert = "INSERT INTO kv (driver, k, v) VALUES (?, ?, ?)"
	get    = "SELECT v FROM kv WHERE driver = ? AND k = ?"
	create = "INSERT INTO register (k, v) VALUES (?, 0) IF NOT EXISTS"
	cas    = "UPDATE register SET v = ? WHERE k = ? IF v = ?"
	serial = "SELECT v FROM register WHERE k = ?"
)

// To see that it is found: some writes are claimed and not made. Of keys that nobody else uses.
var (
	_, isLying = os.LookupEnv("LOAD_LIE")
	firstKey   = map[bool]int{true: 1_000_000}[isLying]
)

type load struct {
	session      *gocql.Session
	mutex        sync.Mutex
	acknowledged []int
	counts       map[string]int
	errors       map[string]int
	wrong        []string
	seen         int // of the shared register
}

// isExpected says whether an error is one that failing nodes explain: the outcome is not known.
func isExpected(err error) bool {
	var unavailable *gocql.RequestErrUnavailable
	var writeTimeout *gocql.RequestErrWriteTimeout
	var readTimeout *gocql.RequestErrReadTimeout
	var writeFailure *gocql.RequestErrWriteFailure
	var readFailure *gocql.RequestErrReadFailure
	var unknown *gocql.RequestErrCASWriteUnknown
	var network net.Error
	for _, target := range []any{&unavailable, &writeTimeout, &readTimeout, &writeFailure,
		&readFailure, &unknown, &network} {
		if errors.As(err, target) {
			return true
		}
	}
	for _, target := range []error{gocql.ErrTimeoutNoResponse, gocql.ErrConnectionClosed,
		gocql.ErrNoConnections, gocql.ErrNoStreams, gocql.ErrUnavailable, io.EOF, io.ErrUnexpectedEOF,
		io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, target) {
			return true
		}
	}
	var request gocql.RequestError
	if errors.As(err, &request) {
		return request.Code() == gocql.ErrCodeOverloaded || request.Code() == gocql.ErrCodeBootstrapping
	}
	return false
}

// known says whether the outcome is; else it counts the error.
func (l *load) known(err error) bool {
	if err == nil || errors.Is(err, gocql.ErrNotFound) {
		return true
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.errors[strings.TrimPrefix(fmt.Sprintf("%T", err), "*")]++
	if !isExpected(err) {
		l.wrong = append(l.wrong, fmt.Sprintf("unexpected: %T %v", err, err))
	}
	return false
}

func (l *load) note(format string, values ...any) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, values...))
}

func (l *load) add(what string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.counts[what]++
}

func value(key int) string { return fmt.Sprintf("%s-%d", name, key) }

func (l *load) writeAndRead(key, round int) {
	claimed := isLying && key%20 == 0
	written := claimed || l.known(l.session.Query(insert, name, key, value(key)).Exec())
	l.mutex.Lock()
	if written {
		l.acknowledged = append(l.acknowledged, key)
	}
	chosen := -1
	if len(l.acknowledged) > 0 {
		chosen = l.acknowledged[(round*7919)%len(l.acknowledged)]
	}
	l.mutex.Unlock()
	if chosen >= 0 {
		l.check(chosen)
	}
}

// check reads what was acknowledged; false when nobody answers.
func (l *load) check(key int) bool {
	var found string
	err := l.session.Query(get, name, key).Scan(&found)
	if !l.known(err) {
		return false
	}
	l.add("reads")
	if found != value(key) {
		l.note("key %d was acknowledged and reads %q", key, found)
	}
	return true
}

// register is a counter that one worker alone raises.
type register struct {
	name    string
	value   int
	unknown bool // of the step from value on
}

// raise: each step is applied once, or it is not known.
func (l *load) raise(r *register) {
	var before int
	applied, err := l.session.Query(cas, r.value+1, r.name, r.value).ScanCAS(&before)
	switch {
	case !l.known(err):
		l.add("unknown")
		r.unknown = true
		return
	case applied:
		l.add("applied")
		r.value++
	case r.unknown && before == r.value+1:
		l.add("found applied")
		r.value++
	default:
		l.note("%s: %d was there and %d is read", r.name, r.value, before)
		r.value = before
	}
	r.unknown = false
}

func (l *load) serial(key string) (int, bool) {
	var value int
	err := l.session.Query(serial, key).Consistency(gocql.Serial).Scan(&value)
	return value, l.known(err)
}

// share raises a counter that everybody raises: it never goes back.
func (l *load) share() {
	l.mutex.Lock()
	seen := l.seen
	l.mutex.Unlock()
	value, ok := l.serial("shared")
	if !ok {
		return
	}
	if value < seen {
		l.note("shared: %d was there and %d is read", seen, value)
	}
	var before int
	applied, err := l.session.Query(cas, value+1, "shared", value).ScanCAS(&before)
	ok = l.known(err)
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !ok {
		l.counts["shared unknown"]++
	} else if applied {
		l.counts["shared applied"]++
		value++
	}
	l.seen = max(l.seen, value)
}

func (l *load) work(number int, stop <-chan struct{}) {
	own := register{name: fmt.Sprintf("%s-%d", name, number)}
	for {
		_, err := l.session.Query(create, own.name).ScanCAS(nil, nil)
		if l.known(err) {
			break
		}
	}
	for round := 0; ; round++ {
		select {
		case <-stop:
			last, ok := l.serial(own.name)
			for !ok {
				last, ok = l.serial(own.name)
			}
			if last != own.value && !(own.unknown && last == own.value+1) {
				l.note("%s: %d was there and %d is read at the end", own.name, own.value, last)
			}
			return
		default:
		}
		l.writeAndRead(firstKey+number+round*workers, round)
		if round%4 == 0 {
			l.raise(&own)
		}
		if round%8 == 1 {
			l.share()
		}
		time.Sleep(pause)
	}
}

func connect() (*gocql.Session, error) {
	cluster := gocql.NewCluster(strings.Split(os.Getenv("LOAD_HOSTS"), ",")...)
	cluster.Keyspace = "faults"
	cluster.Timeout = timeout
	cluster.ConnectTimeout = timeout
	cluster.Consistency = gocql.Quorum
	cluster.SerialConsistency = gocql.Serial
	cluster.NumConns = 1
	cluster.ReconnectInterval = time.Second
	cluster.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	return cluster.CreateSession()
}

func main() {
	session, err := connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	l := &load{session: session, counts: map[string]int{}, errors: map[string]int{}, wrong: []string{}}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for number := range workers {
		group.Go(func() { l.work(number, stop) })
	}
	fmt.Println("ready")
	// Any other line, or the end of the input, stops the load.
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() && input.Text() == "count" {
		l.mutex.Lock()
		fmt.Println(len(l.acknowledged))
		l.mutex.Unlock()
	}
	close(stop)
	group.Wait()
	l.counts["reads under faults"] = l.counts["reads"]
	for number := range verifiers {
		group.Go(func() {
			for at := number; at < len(l.acknowledged); at += verifiers {
				for !l.check(l.acknowledged[at]) {
				}
			}
		})
	}
	group.Wait()
	session.Close()
	text, err := json.Marshal(map[string]any{"driver": name, "acknowledged": len(l.acknowledged),
		"counts": l.counts, "errors": l.errors, "wrong": l.wrong})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
