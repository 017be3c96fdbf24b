// pgx HOST PORT USER - the code of doc/drivers.md, which stands where it says so below.  A line
// "ACTION NAME" is carried out, and answered by one line.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

// CODE OF THE PAGE

var ctx = context.Background()
var attempts int

// What is done under a lock: it writes twice, and waits in between.
func work(execute func(sql string) error) error {
	attempts++
	for _, sql := range []string{"INSERT INTO done VALUES (1)", "SELECT pg_advisory_xact_lock_shared(1)",
		"INSERT INTO done VALUES (2)"} {
		if err := execute(sql); err != nil {
			return err
		}
	}
	return nil
}

func act(pool *pgxpool.Pool, config, action, name string) (string, error) {
	switch action {
	case "locked":
		return "done", locked(ctx, pool, name, func(tx pgx.Tx) error {
			return work(func(sql string) error { _, err := tx.Exec(ctx, sql); return err })
		})
	case "session":
		return "done", lockedSession(ctx, config, name, func(conn *pgx.Conn) error {
			return work(func(sql string) error { _, err := conn.Exec(ctx, sql); return err })
		})
	}
	conn, err := pgx.Connect(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if action == "begun" {
		if _, err = conn.Begin(ctx); err != nil {
			return "", err
		}
	}
	if _, err = conn.Exec(ctx, "SELECT zk_lock($1)", name); err != nil {
		return "", err
	}
	var holds bool
	if err = conn.QueryRow(ctx, "SELECT zk_token($1) IS NOT NULL", name).Scan(&holds); err != nil {
		return "", err
	}
	if action == "autocommit" {
		return map[bool]string{true: "True", false: "False"}[holds], nil
	} else if !holds {
		return "not held", nil
	}
	_, err = conn.Exec(ctx, "CALL zk_lock_session($1)", name)
	return "done", err
}

func main() {
	config := fmt.Sprintf("host=%s port=%s user=%s dbname=postgres sslmode=disable statement_cache_mode=describe",
		os.Args[1], os.Args[2], os.Args[3])
	// a pool of one connection, so that it is the same one again
	pool, err := pgxpool.Connect(ctx, config+" pool_max_conns=1")
	if err != nil {
		panic(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		attempts = 0
		answer, err := act(pool, config, words[0], words[1])
		var failed interface{ SQLState() string }
		if errors.As(err, &failed) {
			answer = failed.SQLState()
		} else if err != nil {
			answer = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer, attempts)
	}
}
