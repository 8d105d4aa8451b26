package engine

import (
	"context"
	"flag"
	"fmt"
	"os"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"perdure.dev/perdure/internal/sandbox/process"
	"perdure.dev/perdure/internal/sandbox/shim"
)

// Main is the program perdure-engine: "shim --dir DIR" runs a sandbox, with --spare one whose user is yet to come; "probe DIR" tells what is missing for one with files below DIR; "image" reads for one, see serveImageFrom; everything else is
// gVisor calling itself.
func Main(ctx context.Context, args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "perdure-engine is started by perdure; there is nothing to do by hand")
		return 2
	}
	switch args[1] {
	case "shim":
		set := flag.NewFlagSet("shim", flag.ContinueOnError)
		dir := set.String("dir", "", "state directory of the sandbox")
		spare := set.Bool("spare", false, "make a sandbox ahead of need")
		if err := set.Parse(args[2:]); err != nil || *dir == "" {
			fmt.Fprintln(os.Stderr, "usage: perdure-engine shim --dir DIR [--spare]")
			return 2
		}
		if *spare {
			return shim.SpareMain(ctx, *dir, map[string]shim.SpareFactory{"gvisor": Prepare})
		}
		return shim.Main(ctx, *dir, map[string]shim.Factory{
			"gvisor":  New,
			"process": process.NewEngine,
		})
	case imageCommand:
		return imageMain(args[2:])
	case "probe":
		if len(args) < 3 { // a daemon of an earlier version asks
			return probe(os.TempDir())
		}
		return probe(args[2])
	}
	installFilters()
	collectLate()
	cli.Run(nil, map[util.SubCommand]string{ // never returns
		new(sentrycmd.Boot):   "internal",
		new(lateGofer):        "internal",
		new(sentrycmd.Umount): "internal",
	}, nil)
	return 0
}
