package service

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"perdure.dev/perdure/internal/checkpoint"
	"perdure.dev/perdure/internal/event"
	"perdure.dev/perdure/internal/guest/wire"
	"perdure.dev/perdure/internal/image"
	"perdure.dev/perdure/internal/layer"
	"perdure.dev/perdure/internal/sandbox"
)

// environment is what a checkpoint of a session is taken in, but for what only the driver knows.
func environment(spec event.Spec) checkpoint.Environment {
	return checkpoint.Environment{
		Driver: spec.Driver, Image: spec.Image, ImageDigest: image.Digest(spec.Image), Arch: runtime.GOARCH, Kernel: kernelRelease(), Layers: layer.Marks(), Guest: wire.Version,
	}
}

var kernelRelease = sync.OnceValue(func() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
})

// misfit says why the memory of a checkpoint that was taken in an environment cannot be used by a driver here: a code of event.Lost…, and the
// reason for people. Both are "" if nothing is known against it. It looks at nothing but its arguments, so that nobody has to try.
func misfit(env checkpoint.Environment, driver string, caps sandbox.Capabilities) (code, reason string) {
	switch {
	case env.Driver != driver:
		return event.LostToDriver, fmt.Sprintf("saved by driver %s, this is %s", env.Driver, driver)
	case env.Arch != "" && env.Arch != runtime.GOARCH:
		return event.LostToArch, fmt.Sprintf("saved on %s, this is %s", env.Arch, runtime.GOARCH)
	case env.Version != caps.Version:
		return event.LostToEngine, fmt.Sprintf("saved by engine version %s, this is %s", env.Version, caps.Version)
	case env.Guest != 0 && env.Guest != wire.Version:
		return event.LostToEngine, fmt.Sprintf("its guest speaks version %d of the link's language, this is %d", env.Guest, wire.Version)
	case env.CPU != nil && caps.CPU != nil:
		if lacks := caps.CPU.Lacks(*env.CPU); lacks != "" {
			return event.LostToCPU, lacks
		}
	}
	return "", ""
}
