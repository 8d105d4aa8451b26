package engine

import (
	"fmt"
	"os"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	gsandbox "gvisor.dev/gvisor/runsc/sandbox"
	"gvisor.dev/gvisor/runsc/specutils"

	"perdure.dev/perdure/internal/sandbox/gvisor/pages"
)

// gVisor's own container.Restore takes an image in files. All that it does is done here by its own functions, but for the files.

//go:linkname startContainer gvisor.dev/gvisor/runsc/container.(*Container).startImpl
func startContainer(c *container.Container, conf *config.Config, action string, root func(*config.Config, *specs.Spec) error, sub startSub) error

type startSub = func(spec *specs.Spec, conf *config.Config, cid string, stdio, gofer, filestores []*os.File, device *os.File, mounts []specutils.GoferMountConf) error

//go:linkname connectSandbox gvisor.dev/gvisor/runsc/sandbox.(*Sandbox).sandboxConnect
func connectSandbox(s *gsandbox.Sandbox) (*urpc.Client, error)

//go:linkname setupNetwork gvisor.dev/gvisor/runsc/sandbox.setupNetwork
func setupNetwork(conn *urpc.Client, pid int, conf *config.Config, disableIPv6, restore bool) error

// introduction tells a sandbox that has been made, and will be restored, of its network. Looking at the network takes as long as mounting
// the root, so it goes on beside that where the sandbox is a spare.
type introduction struct {
	done chan struct{} // closed when what follows is valid
	conn *urpc.Client  // to the sandbox
	err  error
}

// introduce begins an introduction.
func (e *Engine) introduce() *introduction {
	i := &introduction{done: make(chan struct{})}
	box := e.container.Sandbox
	// The goroutine ends with the answer of the sandbox, or with the sandbox; close waits for it.
	go func() {
		defer close(i.done)
		if i.conn, i.err = connectSandbox(box); i.err != nil {
			return
		}
		if err := setupNetwork(i.conn, box.Pid.Load(), e.conf, false, true); err != nil {
			i.err = fmt.Errorf("set up the network: %w", err)
		}
	}()
	return i
}

func (i *introduction) close() {
	<-i.done
	if i.conn != nil {
		i.conn.Close()
	}
}

// restore loads the image in dir into the container, whose introduction may have begun already. It returns when the processes run; pages follow in the background.
//
// Given files, the sandbox reads the pages with up to 128 threads. Each has the same right to a processor as the one thread that loads the
// kernel's state, so where cores are few that thread comes last. Hence the image comes by way of the shim, which reads with few.
//
// Memory is charged to the control group of who first touches it. For a sandbox with a limit, a process in its control groups reads.
func (e *Engine) restore(dir string, intro *introduction) error {
	if intro == nil {
		intro = e.introduce()
		defer intro.close()
	}
	image, err := e.serve(dir)
	if err != nil {
		return err
	}
	defer image.Close() // the sandbox has its copy
	box := e.container.Sandbox
	err = startContainer(e.container, e.conf, "restore", func(*config.Config, *specs.Spec) error {
		if <-intro.done; intro.err != nil {
			return intro.err
		}
		opt := boot.RestoreOpts{Background: true, UseCheckpointGofer: true}
		opt.Files = []*os.File{image}
		if err := intro.conn.Call(boot.ContMgrRestore, &opt, nil); err != nil {
			return fmt.Errorf("restore the kernel: %w", err)
		}
		box.Restored = true
		return nil
	}, box.RestoreSubcontainer)
	if err != nil {
		return err
	}
	restored, err := pages.Open(dir)
	if err != nil {
		e.log.Warn("the next image of the sandbox shares nothing with the last", "error", err)
		return nil
	}
	e.keepImage(restored)
	return nil
}

// serve serves the image in dir to whoever has the returned end of a connection.
func (e *Engine) serve(dir string) (*os.File, error) {
	if !limited(e.cfg) {
		return serveImage(dir)
	}
	return serveImageFrom(dir, e.cgroups())
}
