// Package image holds the commands about stored images: what workspaces start from.
package image
