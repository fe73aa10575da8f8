// Probe of the Go driver (gocql): see ../README.md for its requests and answers.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

type request map[string]string

func connect(r request) (*gocql.Session, error) {
	cluster := gocql.NewCluster(r["host"])
	cluster.Port, _ = strconv.Atoi(r["port"])
	cluster.ConnectTimeout = 10 * time.Second
	cluster.Timeout = 30 * time.Second
	cluster.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: time.Millisecond}
	cluster.Logger = quiet{}
	if r["tls"] == "yes" {
		roots := x509.NewCertPool()
		pem, err := os.ReadFile(r["ca"])
		if err != nil {
			return nil, err
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate in " + r["ca"])
		}
		config := &tls.Config{RootCAs: roots}
		if path, ok := r["cert"]; ok {
			pair, err := tls.LoadX509KeyPair(path, r["key"])
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{pair}
		}
		if r["name"] != "check" {
			// The chain is verified, the name is not.
			config.InsecureSkipVerify = true
			config.VerifyConnection = func(state tls.ConnectionState) error {
				options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
				for _, certificate := range state.PeerCertificates[1:] {
					options.Intermediates.AddCert(certificate)
				}
				_, err := state.PeerCertificates[0].Verify(options)
				return err
			}
		}
		cluster.SslOpts = &gocql.SslOptions{Config: config, EnableHostVerification: r["name"] == "check"}
	}
	if user, ok := r["user"]; ok {
		cluster.Authenticator = gocql.PasswordAuthenticator{Username: user, Password: r["password"]}
	}
	return cluster.CreateSession()
}

func query(session *gocql.Session) (string, error) {
	var key string
	err := session.Query("SELECT key FROM system.local").Scan(&key)
	return key, err
}

// What the driver logs would be taken for an answer.
type quiet struct{}

func (quiet) Error(string, ...gocql.LogField)   {}
func (quiet) Warning(string, ...gocql.LogField) {}
func (quiet) Info(string, ...gocql.LogField)    {}
func (quiet) Debug(string, ...gocql.LogField)   {}

type load struct {
	stop atomic.Bool
	done chan string
}

func (l *load) run(r request) {
	done, failures, first := 0, 0, ""
	failed := func(err error) {
		failures++
		if first == "" {
			first = err.Error()
		}
	}
	for !l.stop.Load() {
		session, err := connect(r)
		if err != nil {
			failed(err)
			continue
		}
		for i := 0; i < 20; i++ {
			if _, err := query(session); err != nil {
				failed(err)
			} else {
				done++
			}
		}
		session.Close()
	}
	l.done <- fmt.Sprintf("%d %d %s", done, failures, first)
}

func main() {
	var open *gocql.Session
	var running *load
	answer := func(verb string, r request) (string, error) {
		switch verb {
		case "try":
			session, err := connect(r)
			if err != nil {
				return "", err
			}
			defer session.Close()
			return query(session)
		case "open":
			session, err := connect(r)
			open = session
			return "", err
		case "close":
			open.Close()
			return "", nil
		case "load":
			running = &load{done: make(chan string)}
			go running.run(r)
			return "", nil
		case "stop":
			running.stop.Store(true)
			return <-running.done, nil
		}
		return "", errors.New("no request " + verb)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		r := request{}
		for _, field := range fields[1:] {
			if name, value, ok := strings.Cut(field, "="); ok {
				r[name] = value
			}
		}
		text, err := answer(fields[0], r)
		line := "ok " + text
		if err != nil {
			line = "error " + err.Error()
		}
		fmt.Println(strings.ReplaceAll(line, "\n", " "))
	}
}
