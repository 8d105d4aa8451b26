// Package pages keeps the memory of sandboxes in images that share what is the same in them.
//
// An image is a stream of pages, in the order in which the engine writes and reads them. Its directory holds a map, which says where each
// page of the stream is, and files of pages, the sources:
//
//	pages.map          for each run of pages: its place in the sandbox's memory, and in which source it is
//	pages-<hex>.img    a source, which is written once and never changed
//
// The image that follows an image of the same memory writes one source, with the pages that differ, and has links to the sources of which
// it still needs pages. So an image takes the disk space of what has changed, deleting one takes nothing from the others, and each directory
// is whole by itself.
//
// Whether a page differs is decided by comparing it with the one that was at its place in the last image. What the map says of places is a
// hint for that and nothing more: a wrong one costs space.
package pages

import "encoding/hex"

// Size is that of a page in bytes.
const Size = 4096

// The names of an image's files.
const (
	MapName  = "pages.map"
	flatName = "pages.img" // the whole stream, in images that are older than maps
)

// Name is what a source is called: 128 random bits.
type Name [16]byte

// File is the name of the source's file.
func (n Name) File() string { return "pages-" + hex.EncodeToString(n[:]) + ".img" }
