-- Argo CD: the health of RLTrainingRuns, RLRuntimes and RLEnvironments. Without it Argo CD calls them healthy as soon
-- as they exist. argocd-cm.yaml next to this file has it for each kind.
-- A run is Healthy once it trains and Suspended while spec.suspend is true. Flux needs nothing: it reads the same
-- conditions by its own rules.
local function progressing(message)
  return {status = "Progressing", message = message}
end

local status = obj.status
if status == nil or status.conditions == nil then
  return progressing("The operator has not looked at it yet.")
end

local messages = {}
for _, condition in ipairs(status.conditions) do
  if condition.status == "True" then
    messages[condition.type] = condition.message or ""
  end
end

-- A finished run keeps its state, whatever is edited afterward.
if messages.Failed ~= nil then
  return {status = "Degraded", message = status.message or messages.Failed}
end
if messages.Complete ~= nil then
  return {status = "Healthy", message = status.message or messages.Complete}
end
if status.observedGeneration ~= obj.metadata.generation then
  return progressing("The operator has not looked at the latest change yet.")
end
if messages.Stalled ~= nil then
  return {status = "Degraded", message = status.message or messages.Stalled}
end
if messages.Suspended ~= nil then
  return {status = "Suspended", message = status.message or messages.Suspended}
end
if messages.Ready ~= nil then
  return {status = "Healthy", message = status.message or messages.Ready}
end
return progressing(status.message or messages.Reconciling)
