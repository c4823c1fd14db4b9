package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	cloudrun "google.golang.org/api/run/v1"

	"github.com/hydrant-mcp/hydrant/internal/harness"
)

func TestComposeAcceptsItsFile(t *testing.T) {
	compose := compose(t)
	out, err := run(t, nil, append(compose, "config", "--quiet")...)
	require.NoError(t, err, out)
	assert.Empty(t, out, "no warnings")
	out, err = run(t, nil, append(compose, "config", "--services")...)
	require.NoError(t, err, out)
	assert.ElementsMatch(t,
		[]string{"proxy", "lambda-1", "lambda-2", "cloudrun-1", "cloudrun-2", "dynamodb", "firestore"}, strings.Fields(out))
}

// compose finds Compose: the plugin of the Docker CLI, or the command of its own.
func compose(t *testing.T) []string {
	t.Helper()
	for _, command := range [][]string{{"docker", "compose"}, {"docker-compose"}} {
		if _, err := run(t, nil, append(command, "version")...); err == nil {
			return command
		}
	}
	harness.Missing(t, "Docker Compose", "install it with Docker, or the package docker-compose of your distribution")
	return nil
}

// The image is built around a binary from here, since the first stage of the Dockerfile needs a registry.
func TestImageIsBuiltFromScratch(t *testing.T) {
	builder := builder(t)
	if testing.Short() {
		t.Skip("it compiles and builds an image")
	}
	const image = "hydrant-notes-test"
	out, err := run(t, []string{"PREBUILT=1"}, filepath.Join(root(t), "deploy", "image.sh"), image)
	require.NoError(t, err, out)
	t.Cleanup(func() { _ = exec.Command(builder, "rmi", "--force", image).Run() })

	format := "{{.Config.User}} {{.Config.Entrypoint}}"
	inspect := []string{builder, "inspect", "--format", format, image}
	if builder == "buildah" {
		format = strings.ReplaceAll(format, ".Config", ".OCIv1.Config")
		inspect = []string{builder, "inspect", "--type", "image", "--format", format, image}
	}
	out, err = run(t, nil, inspect...)
	require.NoError(t, err, out)
	assert.Equal(t, "65532:65532 [/server]", strings.TrimSpace(out), "not root, and no shell")

	url := start(t, builder, image)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		res, err := http.Get(url)
		if assert.NoError(c, err) {
			assert.Equal(c, http.StatusOK, res.StatusCode)
			assert.NoError(c, res.Body.Close())
		}
	}, time.Minute, 50*time.Millisecond)
}

// start runs the image until the test ends, and returns where it is healthy. It needs no database for that.
func start(t *testing.T, builder, image string) (url string) {
	t.Helper()
	port := freePort(t)
	env := []string{"-e", "FIRESTORE_EMULATOR_HOST=127.0.0.1:1", "-e", "GOOGLE_CLOUD_PROJECT=test"}
	command := append([]string{"run", "--rm", "-p", "127.0.0.1:" + port + ":8080"}, append(env, image)...)
	if builder == "buildah" {
		out, err := exec.Command(builder, "from", "--pull-never", image).Output()
		require.NoError(t, err)
		container := strings.TrimSpace(string(out))
		t.Cleanup(func() { _ = exec.Command(builder, "rm", container).Run() })
		// In the network of this machine.
		command = append([]string{"run", "--isolation", "chroot", "-e", "PORT=" + port}, append(env, container, "/server")...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, builder, command...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // which it passes on to the server
	cmd.WaitDelay = 20 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(output.String())
		}
	})
	return "http://127.0.0.1:" + port + "/healthz"
}

// builder finds what deploy/image.sh will use.
func builder(t *testing.T) string {
	t.Helper()
	if exec.Command("docker", "info").Run() == nil {
		return "docker"
	}
	for _, name := range []string{"podman", "buildah"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	harness.Missing(t, "a builder of container images", "start Docker, or install Podman or Buildah")
	return ""
}

// Google's own types have every field that Cloud Run knows: a field that is misspelt is one that they lack.
func TestCloudRunServiceHasKnownFieldsOnly(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "deploy", "cloudrun", "service.yaml"))
	require.NoError(t, err)
	var generic map[string]any
	require.NoError(t, yaml.Unmarshal(text, &generic))
	service := decode[cloudrun.Service](t, generic)
	require.Len(t, service.Spec.Template.Spec.Containers, 1)
	assert.EqualValues(t, 8080, service.Spec.Template.Spec.Containers[0].Ports[0].ContainerPort)
}

// decode brings generic data into a form, and refuses fields that the form does not have where it has all of them.
func decode[T any](t *testing.T, generic any) (v T) {
	t.Helper()
	data, err := json.Marshal(generic)
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(data))
	if _, partial := any(v).(template); !partial {
		d.DisallowUnknownFields()
	}
	require.NoError(t, d.Decode(&v))
	return v
}
