package server

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/errdefs"
)

// parseSignal reads "TERM", "SIGTERM", "sigterm" or "15".
func parseSignal(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= 64 {
		return n, nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return int(n), nil
	}
	return 0, errdefs.New(errdefs.Invalid, "unknown_signal", "there is no signal %q", s).WithHint("Use a name such as TERM or INT, or a number.")
}
