package service

import (
	"slices"
	"testing"
)

// TestX8_OnlyWhoWritesBeyondTheLimitIsStopped gives sizes as looks would find them, of a workspace that may hold 20.
func TestX8_OnlyWhoWritesBeyondTheLimitIsStopped(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes []int64
		kills []int // indexes into sizes
	}{
		{"below", []int64{1, 20}, nil},
		{"written between the look and the kill", []int64{5, 21, 24, 24, 24}, []int{1}},
		{"another writes on", []int64{21, 24, 24, 25, 26, 27}, []int{0, 3, 5}},
		{"tidied up", []int64{21, 24, 3, 21, 23, 23}, []int{0, 3}},
		{"shrinks, yet is too much", []int64{40, 41, 30, 31, 41}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var g growth
			var got []int
			for i, n := range c.sizes {
				if g.exceeded(n, 20) {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.kills) {
				t.Errorf("killed at %v, want %v", got, c.kills)
			}
		})
	}
}
