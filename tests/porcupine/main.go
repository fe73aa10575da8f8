// Checks exported histories of conditional writes with porcupine and compares its verdicts with
// those of the simulator's own checker.
//
//	go run . DIRECTORY
//
// The directory is written by "sim export DIRECTORY": verdicts.txt has a line "FILE ok" or
// "FILE violation" for each history. It ends with 1 when a verdict differs, when none was compared,
// or when porcupine left more than one in twenty undecided: its search is exponential in the
// operations without a known outcome, and a spoilt history can take it hours.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const rows = 3

// patience is how long porcupine may think about one history.
const patience = 15 * time.Second

// operation is one line of a history, see sim/src/lwt.rs.
type operation struct {
	Call    int64    `json:"call"`
	Return  *int64   `json:"return"`
	Request string   `json:"request"`
	Row     int      `json:"row"`
	Expect  *int64   `json:"expect"`
	New     int64    `json:"new"`
	Seen    string   `json:"seen"`
	Fixed   *int64   `json:"fixed"`
	Rows    []*int64 `json:"rows"`
	Value   *int64   `json:"value"`
}

// cell is a value that may be null.
type cell struct {
	there bool
	value int64
}

func of(p *int64) cell {
	if p == nil {
		return cell{}
	}
	return cell{true, *p}
}

// part is the state of a partition: the static column and the rows.
type part struct {
	fixed cell
	rows  [rows]cell
}

// met tells whether the condition holds, and the partition after the write.
func (p part) apply(op operation) (bool, part) {
	is := false
	after := p
	switch op.Request {
	case "read":
		is = true
	case "insert":
		is = !p.rows[op.Row].there
		after.rows[op.Row] = cell{true, op.New}
	case "update":
		is = op.Expect != nil && p.rows[op.Row] == of(op.Expect)
		after.rows[op.Row] = cell{true, op.New}
	case "delete":
		is = p.rows[op.Row].there
		after.rows[op.Row] = cell{}
	case "static":
		is = p.fixed == of(op.Expect)
		after.fixed = cell{true, op.New}
	case "batch":
		is = p.fixed == of(op.Expect) && !p.rows[op.Row].there
		after.fixed = cell{true, op.New}
		after.rows[op.Row] = cell{true, op.New}
	}
	if !is {
		return false, p
	}
	return true, after
}

func step(state, input, _ interface{}) (bool, interface{}) {
	p, op := state.(part), input.(operation)
	met, after := p.apply(op)
	switch op.Seen {
	case "unknown":
		return true, after
	case "applied":
		return met, after
	case "not":
		return !met, p
	case "not-with":
		seen := p.fixed
		if op.Request != "static" {
			seen = p.rows[op.Row]
		}
		return !met && seen == of(op.Value), p
	case "read":
		same := p.fixed == of(op.Fixed)
		for i := range p.rows {
			same = same && p.rows[i] == of(op.Rows[i])
		}
		return same, p
	}
	return false, p
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []porcupine.Operation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(all)+1, err)
		}
		// Who does not know the outcome: at any time after the call.
		end := int64(math.MaxInt64)
		if op.Return != nil {
			end = *op.Return
		}
		all = append(all, porcupine.Operation{ClientId: len(all), Input: op, Call: op.Call, Return: end})
	}
	return all, lines.Err()
}

func run(directory string) error {
	text, err := os.ReadFile(filepath.Join(directory, "verdicts.txt"))
	if err != nil {
		return err
	}
	model := porcupine.Model{Init: func() interface{} { return part{} }, Step: step}
	count := map[string]int{}
	all, undecided := 0, 0
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, ours, _ := strings.Cut(line, " ")
		history, err := read(filepath.Join(directory, name))
		if err != nil {
			return err
		}
		all++
		theirs := "violation"
		switch porcupine.CheckOperationsTimeout(model, history, patience) {
		case porcupine.Ok:
			theirs = "ok"
		case porcupine.Unknown:
			fmt.Printf("%s: not decided within %s, the simulator says %s\n", name, patience, ours)
			undecided++
			continue
		}
		if ours != theirs {
			return fmt.Errorf("%s: the simulator says %s, porcupine %s", name, ours, theirs)
		}
		count[ours]++
	}
	fmt.Printf("%d linearizable and %d other histories, same verdicts\n", count["ok"], count["violation"])
	if undecided*20 > all {
		return fmt.Errorf("%d of %d histories not decided", undecided, all)
	}
	if count["ok"] == 0 || count["violation"] == 0 {
		return fmt.Errorf("verdicts of both kinds are expected")
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
