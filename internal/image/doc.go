// Package image says what a workspace can start from, and what a store of images promises.
//
// # References
//
//	host                     the machine's own /usr
//	dir:/PATH                a directory of the daemon's machine that holds a root file system
//	debian:12                an image in the store: NAME, NAME:TAG or NAME@sha256:HEX, as registries name images
//	sha256:HEX               an image in the store, by its digest or at least its first 12 digits
//	oci:REFERENCE            either of the last two, also where it would read as one of the first: oci:host, oci:dir:1
//
// # Pins
//
// A tag moves, a session does not: when a session is made, its reference becomes a pin, oci:NAME@sha256:HEX, and the digest alone decides from
// then on what the session, its forks and its checkpoints stand on.
//
// # Guarantees of a Store
//
//   - A layer is complete and verified before anything refers to it, and never changes afterwards.
//   - Each layer is stored once, by the digest of its contents, whichever images have it.
//   - A crash at any moment leaves the images that there were, and perhaps whole layers that the same pull finds again.
//   - Pulls of one image at the same time are one pull.
package image
