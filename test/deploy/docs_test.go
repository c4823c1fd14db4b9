package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var guides = []string{"docs/deploy-lambda.md", "docs/deploy-cloudrun.md"}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(path)))
	require.NoError(t, err)
	return string(text)
}

// Code moves and guides stay behind.
func TestGuidesNameFilesThatExist(t *testing.T) {
	named := regexp.MustCompile(`(?:^|[^\w./-])((?:examples|deploy|adapters|handler|store|docs)/[\w./-]*\w)`)
	for _, guide := range guides {
		found := named.FindAllStringSubmatch(read(t, guide), -1)
		assert.NotEmpty(t, found, guide)
		for _, path := range found {
			_, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(path[1])))
			assert.NoError(t, err, guide)
		}
	}
}

func TestGuidesUseParametersThatTheTemplateHas(t *testing.T) {
	template := read(t, "template.yaml")
	parameters, _, _ := strings.Cut(template[strings.Index(template, "\nParameters:"):], "\nRules:")
	used := regexp.MustCompile(`\b(FrontDoor|Auth|Jwt\w+|KeysSecret|Timeout|MemorySize|LogRetentionDays)=`)
	for _, name := range used.FindAllStringSubmatch(read(t, guides[0]), -1) {
		assert.Contains(t, parameters, "\n  "+name[1]+":\n")
	}
	outputs := template[strings.Index(template, "\nOutputs:"):]
	for _, name := range []string{"Endpoint", "TableName"} {
		assert.Contains(t, read(t, guides[0]), name)
		assert.Contains(t, outputs, "\n  "+name+":\n")
	}
}

// The time to live is turned on for every collection that has one.
func TestGuideTurnsOnEveryTimeToLive(t *testing.T) {
	var indexes struct {
		FieldOverrides []struct {
			CollectionGroup, FieldPath string
			TTL                        bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, "firestore.indexes.json")), &indexes))
	var want []string
	for _, f := range indexes.FieldOverrides {
		if f.TTL {
			require.Equal(t, "ttl", f.FieldPath)
			want = append(want, f.CollectionGroup)
		}
	}
	loop := regexp.MustCompile(`for collection in (.+); do`).FindStringSubmatch(read(t, guides[1]))
	require.NotNil(t, loop)
	assert.ElementsMatch(t, want, strings.Fields(loop[1]))
}

// What the guide writes into the service is all that is to be written.
func TestServiceHasTwoBlanks(t *testing.T) {
	service := read(t, "deploy/cloudrun/service.yaml")
	blanks := regexp.MustCompile(`MY_\w+?\b`).FindAllString(service[strings.Index(service, "apiVersion:"):], -1)
	for _, blank := range blanks {
		assert.Contains(t, []string{"MY_PROJECT", "MY_REGION"}, blank)
	}
	for line := range strings.Lines(service[strings.Index(service, "apiVersion:"):]) {
		assert.LessOrEqual(t, strings.Count(line, "MY_PROJECT"), 1, "sed replaces the first of a line: %s", line)
	}
}
