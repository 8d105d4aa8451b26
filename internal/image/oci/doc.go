// Package oci is a store of images in the form of the OCI image specification, on a local disk.
//
//	layers/HEX/fs          a layer's files, ready for overlayfs, by the digest of its archive without compression
//	layers/HEX/layer.json  what the archive has become; written before the directory gets its name
//	layers/dirs-HEX/…      directories of images whose layers describe them incompletely, see parents.go
//	images/HEX.json        an image: its configuration and its layers; written once all of those are there
//	names.json             which image each name means
//	tmp/                   what is being unpacked, or received
//
// Whatever is below tmp when a store is opened was left by a crash, and goes. A layer without an image may be of a pull that was cut, which
// finds it again; after a day it goes, too.
package oci
