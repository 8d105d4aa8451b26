// Command perdure-guest is the first process inside a sandbox. It dials the host's socket and does what the host asks.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"runtime"

	"perdure.dev/perdure/internal/guest/inside"
)

func main() {
	var cfg inside.Config
	flag.StringVar(&cfg.Socket, "socket", os.Getenv("PERDURE_SOCKET"), "unix `path` of the host's socket")
	flag.StringVar(&cfg.RunDir, "run-dir", "/run/perdure", "`directory` for scripts and FIFOs")
	flag.StringVar(&cfg.Home, "home", defaultHome(), "`directory` where commands start")
	flag.StringVar(&cfg.Hooks, "hooks", "", "`directory` of hooks (default /etc/perdure/hooks for process 1)")
	flag.BoolVar(&cfg.Subreaper, "subreaper", false, "adopt orphans, when not process 1")
	verbose := flag.Bool("verbose", false, "log more")
	flag.Parse()
	if cfg.Hooks == "" && os.Getpid() == 1 { // elsewhere /etc is the machine's
		cfg.Hooks = "/etc/perdure/hooks"
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if cfg.Socket == "" {
		cfg.Log.Error("no socket: use --socket or PERDURE_SOCKET")
		os.Exit(2)
	}
	// The guest waits nearly always. With one processor a goroutine that wakes another hands over to it; with more, each such step would
	// wake a thread, which costs several system calls of the sandbox's kernel.
	runtime.GOMAXPROCS(1)
	if err := inside.Run(context.Background(), cfg); err != nil {
		cfg.Log.Error("the guest could not begin", "err", err)
		os.Exit(1)
	}
}

func defaultHome() string {
	if home := os.Getenv("HOME"); home != "" {
		return home
	}
	return "/root"
}
