// Package gvisor is the driver that runs each sandbox on a kernel of its own: gVisor, on the systrap platform, which needs neither
// KVM nor a patched host.
//
// This is the daemon's side. It links nothing of gVisor: it finds the binary perdure-engine, and starts a shim per sandbox with it
// (package shim), in which package engine does the work.
//
// # Files below the cache directory
//
//	base-HASH/    the lowest layer of the image "host": a small root with a synthesized /etc
//	mounts-HASH/  the same for directory images: mount points only
//	guest-HASH    the guest binary
//	spare-ID/     the state directory of a sandbox made ahead of need, see spares.go
//
// The first three are named by their content and never changed, since a memory image refers to the files that its processes had open: an image
// taken with one guest binary is restored with that one, also when a newer perdure is installed.
package gvisor
