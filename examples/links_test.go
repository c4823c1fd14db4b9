// Package examples_test looks at the examples from outside.
package examples_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a binary links is what a cold start reads: each command has the cloud that it runs on, and no other.
func TestCommandsLinkOneCloudOnly(t *testing.T) {
	const aws, google, awsLambda = "github.com/aws/aws-sdk-go-v2", "cloud.google.com/go", "github.com/aws/aws-lambda-go"
	for _, example := range []string{"./approve", "./notes"} {
		for command, foreign := range map[string][]string{
			"/local":    {google, awsLambda},
			"/lambda":   {google, "github.com/hydrant-mcp/hydrant/adapters/cloudrun"},
			"/cloudrun": {aws, awsLambda},
		} {
			command = example + command
			out, err := exec.Command("go", "list", "-deps", command).CombinedOutput()
			require.NoError(t, err, "%s", out)
			for path := range strings.Lines(string(out)) {
				for _, prefix := range foreign {
					assert.False(t, strings.HasPrefix(path, prefix), "%s links %s", command, path)
				}
			}
		}
	}
}
