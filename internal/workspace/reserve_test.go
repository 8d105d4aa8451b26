package workspace_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReserveIsSpentOnceAndMadeAgain(t *testing.T) {
	_, dirs := open(t)
	if dirs.SpendReserve() {
		t.Error("spent what nobody made")
	}
	for range 2 {
		for range 2 {
			if err := dirs.KeepReserve(); err != nil {
				t.Fatal(err)
			}
		}
		info, err := os.Stat(filepath.Join(dirs.Root, "reserve"))
		if err != nil || info.Sys().(*syscall.Stat_t).Blocks*512 < 4<<20 {
			t.Errorf("%+v, %v: it takes no space", info, err)
		}
		if !dirs.SpendReserve() || dirs.SpendReserve() {
			t.Error("it can be spent once")
		}
	}
	if left, err := filepath.Glob(filepath.Join(dirs.Root, "reserve*")); err != nil || len(left) > 0 {
		t.Errorf("%v %v", left, err)
	}
}
