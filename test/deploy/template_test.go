package deploy

import (
	"debug/elf"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	notesdynamo "github.com/hydrant-mcp/hydrant/examples/notes/dynamo"
	"github.com/hydrant-mcp/hydrant/store/dynamo"
)

var samEnv = []string{"SAM_CLI_TELEMETRY=0", "AWS_DEFAULT_REGION=us-east-1", "__SAM_CLI_APP_DIR=" + os.TempDir()}

func TestTemplateHasNothingForCfnLint(t *testing.T) {
	out, err := run(t, nil, pythonTool(t, "cfn-lint"), "--include-checks", "I", "--", "template.yaml")
	assert.NoError(t, err)
	assert.Empty(t, out)
}

func TestTemplateIsValidForSAM(t *testing.T) {
	out, err := run(t, samEnv, pythonTool(t, "sam"), "validate", "--lint")
	assert.NoError(t, err, out)
	assert.Contains(t, out, "is a valid SAM Template")
}

func TestSAMBuildsTheFunction(t *testing.T) {
	sam := pythonTool(t, "sam")
	if testing.Short() {
		t.Skip("it compiles for another processor")
	}
	dir := t.TempDir()
	out, err := run(t, append([]string{"GOFLAGS=-tags=lambda.norpc"}, samEnv...), sam, "build", "--build-dir", dir)
	require.NoError(t, err, out)
	bootstrap, err := elf.Open(filepath.Join(dir, "Function", "bootstrap"))
	require.NoError(t, err)
	defer bootstrap.Close()
	assert.Equal(t, elf.EM_AARCH64, bootstrap.Machine)
	libraries, err := bootstrap.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, libraries, "it is static")
}

// template is what the tests here look at.
type template struct {
	Resources struct {
		Table struct {
			Properties struct {
				BillingMode             string
				KeySchema               []struct{ AttributeName, KeyType string }
				TimeToLiveSpecification struct {
					AttributeName string
					Enabled       bool
				}
				PointInTimeRecoverySpecification struct {
					PointInTimeRecoveryEnabled bool
				}
			}
		}
		Role struct {
			Properties struct {
				Policies []struct {
					PolicyName     string
					PolicyDocument struct {
						Statement []struct {
							Action   []string
							Resource string
						}
					}
				}
			}
		}
	}
}

func readTemplate(t *testing.T) template {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "template.yaml"))
	require.NoError(t, err)
	// The field names of the template are in capitals, those that the package expects are not.
	var generic map[string]any
	require.NoError(t, yaml.Unmarshal(text, &generic))
	return decode[template](t, generic)
}

// methods are the operations of a client interface, as a policy names them.
func methods[Client any]() []string {
	client := reflect.TypeFor[Client]()
	var actions []string
	for i := range client.NumMethod() {
		actions = append(actions, "dynamodb:"+client.Method(i).Name)
	}
	return actions
}

// The role may do to the table what the code can do to it, and nothing else.
func TestRoleHasTheLeastPrivilege(t *testing.T) {
	policies := readTemplate(t).Resources.Role.Properties.Policies
	require.Len(t, policies, 2)
	table, logs := policies[0], policies[1]
	require.Equal(t, "table", table.PolicyName)
	require.Len(t, table.PolicyDocument.Statement, 1)
	assert.ElementsMatch(t, methods[dynamo.Client](), table.PolicyDocument.Statement[0].Action)
	assert.Equal(t, "Table.Arn", table.PolicyDocument.Statement[0].Resource)
	for _, action := range methods[notesdynamo.Client]() {
		assert.Contains(t, table.PolicyDocument.Statement[0].Action, action, "the notes need it")
	}

	require.Equal(t, "logs", logs.PolicyName)
	require.Len(t, logs.PolicyDocument.Statement, 1)
	assert.Equal(t, []string{"logs:CreateLogStream", "logs:PutLogEvents"},
		slices.Sorted(slices.Values(logs.PolicyDocument.Statement[0].Action)))
	assert.Equal(t, "LogGroup.Arn", logs.PolicyDocument.Statement[0].Resource)
}

func TestTableIsTheOneThatTheStoreNeeds(t *testing.T) {
	table := readTemplate(t).Resources.Table.Properties
	assert.Equal(t, "PAY_PER_REQUEST", table.BillingMode)
	assert.Equal(t, []struct{ AttributeName, KeyType string }{{"pk", "HASH"}, {"sk", "RANGE"}}, table.KeySchema)
	assert.Equal(t, "ttl", table.TimeToLiveSpecification.AttributeName)
	assert.True(t, table.TimeToLiveSpecification.Enabled)
	assert.True(t, table.PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled)
}
