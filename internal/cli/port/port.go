// Package port holds the commands about forwarded ports.
package port

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"perdure.dev/perdure/api"
	"perdure.dev/perdure/client"
	"perdure.dev/perdure/internal/cli/env"
)

// Command is perdure port.
func Command(e *env.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "port S [LOCAL:]GUEST...", Short: "Listen on ports of this machine for a session; who connects wakes it", Args: cobra.MinimumNArgs(2),
		Long: "Have the daemon listen on 127.0.0.1:LOCAL, and bring each connection to the port GUEST of the workspace's loopback. Without LOCAL the daemon\n" +
			"chooses one. The forward stays until it is removed, whatever the session and the daemon do meanwhile.",
		RunE: func(cmd *cobra.Command, args []string) error { return add(cmd.Context(), e, args[0], args[1:]) },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "ls S", Short: "List the forwarded ports of a session", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return ls(cmd.Context(), e, args[0]) },
	}, &cobra.Command{
		Use: "rm S LOCAL...", Short: "End forwards and their connections", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return rm(cmd.Context(), e, args[0], args[1:]) },
	})
	return cmd
}

// parse reads [LOCAL:]GUEST.
func parse(s string) (api.ForwardPort, error) {
	local, guest, both := strings.Cut(s, ":")
	if !both {
		local, guest = "0", s
	}
	l, err := strconv.ParseUint(local, 10, 16)
	if err != nil {
		return api.ForwardPort{}, env.Usage("%q is not [LOCAL:]GUEST: port numbers go from 1 to 65535", s)
	}
	g, err := strconv.ParseUint(guest, 10, 16)
	if err != nil || g == 0 {
		return api.ForwardPort{}, env.Usage("%q is not [LOCAL:]GUEST: port numbers go from 1 to 65535", s)
	}
	return api.ForwardPort{Local: uint16(l), Guest: uint16(g)}, nil
}

func add(ctx context.Context, e *env.Env, s string, specs []string) error {
	var reqs []api.ForwardPort
	for _, spec := range specs {
		req, err := parse(spec)
		if err != nil {
			return err
		}
		reqs = append(reqs, req)
	}
	ask := func(c *client.Client) (out api.List[api.Port], err error) {
		for _, req := range reqs {
			p, err := c.ForwardPort(ctx, s, req)
			if err != nil {
				return out, err
			}
			out.Data = append(out.Data, p)
		}
		return out, nil
	}
	return env.Call(ctx, e, "", ask, show)
}

func show(w io.Writer, list api.List[api.Port]) {
	for _, p := range list.Data {
		fmt.Fprintf(w, "%s -> %d", p.Address, p.Guest)
		if p.Problem != "" {
			fmt.Fprintf(w, " (%s)", env.Plain(p.Problem))
		}
		fmt.Fprintln(w)
	}
}

func ls(ctx context.Context, e *env.Env, s string) error {
	return env.Call(ctx, e, "", func(c *client.Client) (api.List[api.Port], error) { return c.Ports(ctx, s) }, show)
}

// removed is what rm --json prints.
type removed struct {
	Session string   `json:"session"`
	Removed []uint16 `json:"removed"`
}

func rm(ctx context.Context, e *env.Env, s string, locals []string) error {
	out := removed{Session: s}
	for _, local := range locals {
		n, err := strconv.ParseUint(local, 10, 16)
		if err != nil || n == 0 {
			return env.Usage("%q is no port", local)
		}
		out.Removed = append(out.Removed, uint16(n))
	}
	ask := func(c *client.Client) (removed, error) {
		for _, local := range out.Removed {
			if err := c.RemovePort(ctx, s, local); err != nil {
				return out, err
			}
		}
		return out, nil
	}
	return env.Call(ctx, e, "", ask, func(w io.Writer, r removed) {
		for _, local := range r.Removed {
			fmt.Fprintf(w, "port %d is not forwarded any more\n", local)
		}
	})
}
