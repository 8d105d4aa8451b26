// Package engine runs one gVisor sandbox inside a shim, and is the program that gVisor re-executes.
//
// gVisor is used as a library: container.New, Start, Restore, Checkpoint, Pause and Resume are called in this process. They start
// /proc/self/exe again as "boot" (the sandbox), "gofer" (its file server) and "umount"; Main answers to these.
//
// # Guarantees
//
//   - Mounts are made in the shim's private mount namespace, and the network namespace has no name.
//   - Both gVisor processes are tied to the shim: when it dies, the kernel kills them.
//   - A paused sandbox can be saved any number of times; saving leaves it paused.
//
// Only cmd/perdure-engine may import this package: it links all of gVisor.
package engine
