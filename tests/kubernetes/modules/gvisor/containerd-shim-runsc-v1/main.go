// containerd's shim for gVisor, for machines where a process may not lower its oom_score_adj.
//
// It is gVisor's own shim but for one step. The original lowers the score of the shim that it starts and gives up where
// that is forbidden (it takes CAP_SYS_RESOURCE). This one starts the shim and leaves the score as it is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/containerd/containerd/namespaces"
	"github.com/containerd/containerd/runtime/v2/shim"
	runsc "gvisor.dev/gvisor/pkg/shim"
)

const addressFile = "address"

// launcher is gVisor's shim with a StartShim of its own.
type launcher struct {
	shim.Shim
}

// StartShim starts the process that looks after a sandbox, and answers the address of its socket. A shim that listens
// there already is taken as it is.
func (launcher) StartShim(ctx context.Context, options shim.StartOpts) (string, error) {
	address, err := shim.SocketAddress(ctx, options.Address, options.ID)
	if err != nil {
		return "", fmt.Errorf("address of the shim: %w", err)
	}
	if !shim.CanConnect(address) {
		if err := start(ctx, address, options); err != nil {
			return "", err
		}
	}
	return address, shim.WriteAddress(addressFile, address)
}

// start runs this program again as the shim that serves at address; its socket is handed over as descriptor 3.
func start(ctx context.Context, address string, options shim.StartOpts) error {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	// A socket that nobody serves is left from a shim that was killed.
	if err := shim.RemoveSocket(address); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := shim.NewSocket(address)
	if err != nil {
		return fmt.Errorf("socket of the shim: %w", err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()

	command := exec.Command(program,
		"-namespace", namespace, "-address", options.Address, "-publish-binary", options.ContainerdBinary)
	command.Env = append(os.Environ(), "GOMAXPROCS=2")
	command.ExtraFiles = []*os.File{file}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		shim.RemoveSocket(address)
		return fmt.Errorf("start the shim: %w", err)
	}
	return shim.WritePidFile("shim.pid", command.Process.Pid)
}

func main() {
	create := func(ctx context.Context, id string, publisher shim.Publisher, cancel func()) (shim.Shim, error) {
		inner, err := runsc.New(ctx, id, publisher, cancel)
		if err != nil {
			return nil, err
		}
		return launcher{inner}, nil
	}
	shim.Run("io.containerd.runsc.v1", create)
}
