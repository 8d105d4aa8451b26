package main

import (
	"context"
	"log/slog"
	"os"

	"perdure.dev/perdure/internal/cli/system"
	"perdure.dev/perdure/internal/daemon"
	"perdure.dev/perdure/internal/errdefs"
)

// serve runs the daemon in this process, logging to standard error.
func serve(ctx context.Context, o system.ServeOptions) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return errdefs.New(errdefs.Invalid, "invalid_log_level", "there is no log level %q", o.LogLevel).WithHint("use debug, info, warn or error")
	}
	return daemon.Run(ctx, daemon.Config{
		IdlePause: o.IdlePause.Duration(), IdleSuspend: o.IdleSuspend.Duration(), IdleArchive: o.IdleArchive.Duration(), ExpireAfter: o.ExpireAfter.Duration(), HookTime: o.HookTime, Checkpoints: o.Checkpoints, PlainSnapshots: o.PlainSnapshots,
		DataDir: o.DataDir, Listen: o.Listen, HostNames: o.HostNames, ImageCache: int64(o.ImageCache), Getenv: os.Getenv, Build: system.Build(), Step: step(os.Getenv), Ready: o.Ready,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	})
}
