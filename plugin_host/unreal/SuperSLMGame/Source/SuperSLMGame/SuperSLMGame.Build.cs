// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: SuperSLM contributors

// An installed SuperSLM (cmake --install ... --prefix ThirdParty/superslm) lies in the plugin's folder.

using System.IO;
using UnrealBuildTool;

// Not named SuperSLM: the macro SUPERSLM_API belongs to the library's headers.
public class SuperSLMGame : ModuleRules
{
    public SuperSLMGame(ReadOnlyTargetRules Target) : base(Target)
    {
        PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
        CppStandard = CppStandardVersion.Cpp20;
        bEnableExceptions = true; // the cast reports refusals with them; none leaves the module
        PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "Engine" });

        string Root = Path.Combine(PluginDirectory, "ThirdParty", "superslm");
        PublicSystemIncludePaths.Add(Path.Combine(Root, "include"));
        if (Target.Platform == UnrealTargetPlatform.Win64)
        {
            PublicAdditionalLibraries.Add(Path.Combine(Root, "lib", "superslm.lib"));
            PublicDelayLoadDLLs.Add("superslm.dll");
            RuntimeDependencies.Add("$(BinaryOutputDir)/superslm.dll", Path.Combine(Root, "bin", "superslm.dll"));
        }
        else if (Target.Platform == UnrealTargetPlatform.Mac)
        {
            AddShared(Path.Combine(Root, "lib", "libsuperslm.1.dylib"));
        }
        else if (Target.Platform == UnrealTargetPlatform.Linux)
        {
            AddShared(Path.Combine(Root, "lib", "libsuperslm.so.1"));
        }
    }

    private void AddShared(string Library)
    {
        PublicAdditionalLibraries.Add(Library);
        RuntimeDependencies.Add("$(BinaryOutputDir)/" + Path.GetFileName(Library), Library);
    }
}
